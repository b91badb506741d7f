#include "ops/append_attention/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "ops/append_kv/arguments.h"
#include "ops/arguments.h"
#include "ops/attention/arguments.h"
#include "penstock/base/dtype.h"

namespace ps::append_attending {
namespace {

using detail::check_apart;
using detail::described;
using detail::given;
using detail::Named;
using detail::throw_invalid;

// attention() has these arguments of append_kv().
constexpr attending::Names names{
    .k = "k_cache", .v = "v_cache", .cu_q = "cu_new", .lengths_k = "lengths"};

// That no argument is given twice.
void check_absent(const AppendKVOptions& append, const AttentionOptions& attention) {
  const std::pair<const char*, const TensorView&> absent[] = {
      {"append.q", append.q},
      {"append.q_out", append.q_out},
      {"attention.k", attention.k},
      {"attention.v", attention.v},
      {"attention.cu_q", attention.cu_q},
      {"attention.cu_k", attention.cu_k},
      {"attention.lengths_k", attention.lengths_k},
      {"attention.pages", attention.pages}};
  for (const auto& [name, view] : absent) {
    if (given(view)) throw_invalid(name, "none, in append_attention", described(view));
  }
}

AttentionOptions joined(const AppendKVOptions& append, AttentionOptions attention) {
  check_absent(append, attention);
  attention.k = append.k_cache;
  attention.v = append.v_cache;
  attention.pages = append.pages;
  attention.cu_q = append.cu_new;
  attention.lengths_k = append.lengths;
  return attention;
}

// That q has the type, the sequences and the rows of the new keys.
void check_queries(const Named& q, const Named& k) {
  detail::check_same_type(q, k);
  const std::size_t both = k.view.rank() - 2;
  const std::span<const std::int64_t> rows = k.view.shape().first(both);
  if (q.view.rank() == k.view.rank() && std::ranges::equal(q.view.shape().first(both), rows)) {
    return;
  }
  throw_invalid(
      "q",
      fmt::format("shape ({}, heads, dimension): sequences and rows of k", fmt::join(rows, ", ")),
      described(q.view));
}

// What neither operator compares alone.
void check_all_apart(const AppendKVOptions& append, const AttentionOptions& attention) {
  const Named of_append[] = {{"k", append.k},
                             {"v", append.v},
                             {"cos", append.cos},
                             {"sin", append.sin},
                             {"positions", append.positions}};
  const Named of_attention[] = {
      {"q", attention.q}, {"sinks", attention.sinks}, {"first_k", attention.first_k}};
  check_apart({"out", attention.out}, of_append);
  check_apart({"lse", attention.lse}, of_append);
  check_apart({"k_cache", append.k_cache}, of_attention);
  check_apart({"v_cache", append.v_cache}, of_attention);
  if (append.advance) check_apart({"lengths", append.lengths}, of_attention);
}

void check_workspace(const AppendKVOptions& append, const Work& work, const Device& device) {
  const std::size_t bytes = work.workspace_bytes();
  if (device.kind() == DeviceKind::cpu) return;
  if (work.options.workspace.data == nullptr) {
    return detail::check_pool(work.options.pool, bytes, device);
  }
  const Named arguments[] = {{"k", append.k},
                             {"v", append.v},
                             {"cos", append.cos},
                             {"sin", append.sin},
                             {"positions", append.positions}};
  detail::check_workspace(work.options.workspace, bytes, device, arguments);
}

}  // namespace

std::size_t Work::rotated_bytes() const {
  return is_fused() || !rotates_q() ? 0 : options.q.bytes();
}

std::size_t Work::rotated_at() const {
  constexpr std::size_t alignment = 256;
  return (attention.memory_bytes() + alignment - 1) / alignment * alignment;
}

void Work::rotate_into(std::byte* memory) {
  const detail::AttentionStrides strides{
      .batch = append.cu_new == nullptr ? append.each * attention.heads_q * attention.dim : 0,
      .row = std::int64_t{attention.heads_q} * attention.dim,
      .head = attention.dim};
  append.heads_q = attention.heads_q;
  append.q = appending::rows_of(options.q);
  append.q_out = {.data = memory, .batch = strides.batch, .row = strides.row, .head = strides.head};
  attention.q = memory;
  attention.q_strides = strides;
}

Work checked(const AppendKVOptions& append, const AttentionOptions& attention,
             const Device& device) {
  Work work;
  work.options = joined(append, attention);
  work.append = appending::checked(append, device);
  check_queries({"q", attention.q}, {"k", append.k});
  work.attention = attending::checked(work.options, device, names);
  check_all_apart(append, work.options);
  check_workspace(append, work, device);
  detail::AttentionSequences& sequences = work.attention.sequences;
  const auto length = static_cast<std::int32_t>(work.append.length);
  if (work.append.lengths == nullptr && work.append.cu_new == nullptr) {
    // The length with the new rows is known, and the same for all sequences.
    sequences.max_k =
        std::min(sequences.max_k, length + static_cast<std::int32_t>(work.append.each));
  } else {
    sequences.appends = true;
    sequences.had = length;
  }
  return work;
}

std::size_t workspace_bytes(const AppendKVOptions& append, const AttentionOptions& attention) {
  Work work;
  work.options = joined(append, attention);
  work.attention = attending::sized_work(work.options, names);
  work.append.rotated = given(append.cos) ? 1 : 0;
  return work.workspace_bytes();
}

}  // namespace ps::append_attending
