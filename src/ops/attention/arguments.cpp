#include "ops/attention/arguments.h"

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <string>
#include <string_view>

#include "ops/arguments.h"
#include "ops/attention/shapes.h"
#include "ops/properties.h"
#include "penstock/base/error.h"

namespace ps::attending {
namespace {

using detail::AttentionDecodeSpace;
using detail::AttentionPages;
using detail::AttentionReach;
using detail::AttentionSequences;
using detail::AttentionStrides;
using detail::AttentionWork;
using detail::AttentionWorkspace;
using detail::check_aligned_rows;
using detail::check_apart;
using detail::check_contiguous;
using detail::check_distinct_elements;
using detail::check_memory;
using detail::described;
using detail::given;
using detail::Named;
using detail::stride_or;
using detail::throw_invalid;

AttentionStrides strides_of(const TensorView& view) {
  const std::size_t row = view.rank() - 3, head = row + 1, last = row + 2;
  AttentionStrides found;
  found.head = stride_or(view, head, view.extent(last));
  found.row = stride_or(view, row, view.extent(head) * view.extent(last));
  if (view.rank() == 4)
    found.batch = stride_or(view, 0, view.extent(row) * view.extent(head) * view.extent(last));
  return found;
}

// The most rows of a sequence.
std::int32_t most(std::string_view name, std::int64_t asked, std::int64_t rows) {
  if (asked < 0) throw_invalid(name, "0 or more", std::to_string(asked));
  return static_cast<std::int32_t>(asked == 0 || asked > rows ? rows : asked);
}

// Sequences of the same length have all rows of q.
std::int32_t most_queries(const AttentionOptions& options, const Extents& q) {
  const std::int32_t found = most("max_q", options.max_q, q.rows);
  if (!given(options.cu_q) && found != q.rows) {
    throw_invalid("max_q", fmt::format("{} or more, the rows of q, or 0 if not known", q.rows),
                  std::to_string(options.max_q));
  }
  if (given(options.cu_q) && options.batch_invariant && options.kernel == AttentionKernel::best &&
      options.max_q == 0) {
    throw_invalid(
        "max_q",
        "1 or more, because of batch_invariant: kernel best chooses by the most rows of a "
        "sequence",
        "0");
  }
  return found;
}

std::int32_t reach(std::string_view name, std::int64_t window) {
  if (window < -1) throw_invalid(name, "-1 or more", std::to_string(window));
  if (window == -1 || window >= detail::attention_most_rows) return detail::attention_unlimited;
  return static_cast<std::int32_t>(window);
}

AttentionReach reach(const AttentionOptions& options) {
  AttentionReach both{reach("window_left", options.window_left),
                      reach("window_right", options.window_right)};
  if (options.causal) both.right = 0;
  return both;
}

void check_numbers(const AttentionOptions& options) {
  if (!std::isfinite(options.scale)) {
    throw_invalid("scale", "a finite number", fmt::format("{}", options.scale));
  }
  if (!(options.softcap >= 0) || !std::isfinite(options.softcap)) {
    throw_invalid("softcap", "a finite number of 0 or more", fmt::format("{}", options.softcap));
  }
  if (options.kernel > AttentionKernel::decode_portable) {
    throw_invalid("kernel", "best, portable, sm90, decode or decode_portable",
                  std::to_string(static_cast<int>(options.kernel)));
  }
}

void check_memories(const Views& views, const Device& device) {
  for (const Named* each : {&views.q, &views.k, &views.v, &views.out})
    check_aligned_rows(*each, device);
  for (const Named* each :
       {&views.sinks, &views.cu_q, &views.cu_k, &views.first_k, &views.lengths_k, &views.lse}) {
    check_contiguous(*each);
  }
  const auto all = views.all();
  for (const Named& each : all) check_memory(each, device);
  check_distinct_elements(views.out);
  check_apart(views.out, std::span(all).first(all.size() - 1));
  check_apart(views.lse, std::span(all).first(all.size() - 2));
}

AttentionSequences sequences_of(const AttentionOptions& options, const Shapes& shapes) {
  const auto array = [](const TensorView& view) {
    return static_cast<const std::int32_t*>(view.data());
  };
  return {.count = static_cast<std::int32_t>(shapes.q.sequences),
          .q_rows = static_cast<std::int32_t>(shapes.q.rows),
          .k_rows = static_cast<std::int32_t>(shapes.k.rows),
          .max_q = most_queries(options, shapes.q),
          .max_k = most("max_k", options.max_k, shapes.k.rows),
          .cu_q = array(options.cu_q),
          .cu_k = array(options.cu_k),
          .first_k = array(options.first_k),
          .lengths_k = array(options.lengths_k)};
}

AttentionPages pages_of(const TensorView& pages, const Extents& k) {
  if (!given(pages)) return {};
  return {.table = static_cast<const std::int32_t*>(pages.data()),
          .stride = pages.strides()[0],
          .count = static_cast<std::int32_t>(k.pages),
          .rows = kit::Divisor(static_cast<unsigned>(k.page_rows))};
}

// The layouts of the workspace.
struct Spaces {
  AttentionWorkspace space{};
  AttentionDecodeSpace decode{};
};

Spaces sized(const AttentionOptions& options, const Shapes& shapes) {
  const auto& [q, k, v] = shapes;
  const bool several_lengths = given(options.cu_q);
  Spaces sized{.space = detail::attention_workspace(q.rows, q.sequences, several_lengths)};
  const std::int64_t max_q = most_queries(options, q);
  // The rows of all sequences may be fewer than max_q, but depend on the batch.
  const bool by_argument = several_lengths && options.batch_invariant;
  if (detail::attention_decodes(options.kernel, by_argument ? options.max_q : max_q)) {
    const std::int64_t rows = several_lengths ? q.rows : q.sequences * q.rows;
    sized.decode = detail::attention_decode_space(rows * q.heads, q.heads / k.heads, max_q,
                                                  most("max_k", options.max_k, k.rows), v.dim,
                                                  options.batch_invariant);
  }
  return sized;
}

void check_workspace(const AttentionOptions& options, const Views& views, std::size_t bytes,
                     const Device& device) {
  if (device.kind() == DeviceKind::cpu) return;
  if (options.workspace.data == nullptr) return detail::check_pool(options.pool, bytes, device);
  detail::check_workspace(options.workspace, bytes, device, views.all());
}

}  // namespace

AttentionWork sized_work(const AttentionOptions& options, const Names& names) {
  const Views views(options, names);
  const Shapes shapes{extents_of_queries(views), extents_of_keys(views.k, views),
                      extents_of_keys(views.v, views)};
  check_heads(views, shapes);
  check_numbers(options);
  const Spaces spaces = sized(options, shapes);
  AttentionWork work;
  work.space = spaces.space;
  work.decode_space = spaces.decode;
  work.type = options.q.dtype();
  work.kernel = options.kernel;
  return work;
}

AttentionWork checked(const AttentionOptions& options, const Device& device, const Names& names) {
  const Views views(options, names);
  const Shapes shapes = checked_shapes(views);
  check_numbers(options);
  AttentionWork work;
  work.sequences = sequences_of(options, shapes);
  work.pages = pages_of(options.pages, shapes.k);
  work.reach = reach(options);
  check_memories(views, device);
  const Spaces spaces = sized(options, shapes);
  work.space = spaces.space;
  work.decode_space = spaces.decode;
  work.batch_invariant = options.batch_invariant;
  check_workspace(options, views, work.memory_bytes(), device);
  if (device.kind() != DeviceKind::cpu) {
    work.memory = options.workspace.data;
    work.shared_bytes = detail::properties_of(device).shared_bytes;
  }
  work.heads_q = static_cast<std::int32_t>(shapes.q.heads);
  work.heads_k = static_cast<std::int32_t>(shapes.k.heads);
  work.dim = static_cast<std::int32_t>(shapes.q.dim);
  work.dim_v = static_cast<std::int32_t>(shapes.v.dim);
  work.type = options.q.dtype();
  work.kernel = options.kernel;
  work.q = options.q.data();
  work.k = options.k.data();
  work.v = options.v.data();
  work.out = options.out.data();
  work.q_strides = strides_of(options.q);
  work.k_strides = strides_of(options.k);
  work.v_strides = strides_of(options.v);
  work.out_strides = strides_of(options.out);
  work.lse = static_cast<float*>(options.lse.data());
  const bool several_lengths = given(options.cu_q);
  work.lse_strides = {.batch = several_lengths ? 0 : shapes.q.heads * shapes.q.rows,
                      .row = 1,
                      .head = shapes.q.rows};
  work.scale =
      options.scale != 0 ? options.scale : 1.F / std::sqrt(static_cast<float>(shapes.q.dim));
  work.softcap = options.softcap;
  work.sinks = options.sinks.data();
  work.sink_type = options.sinks.dtype();
  return work;
}

}  // namespace ps::attending
