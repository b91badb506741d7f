#include "penstock/ops/append_attention.h"

#include <cstddef>
#include <vector>

#include "host/backend.h"
#include "ops/append_attention/arguments.h"
#include "ops/append_kv/arguments.h"
#include "ops/arguments.h"
#include "ops/attention/arguments.h"
#include "ops/scratch.h"

namespace ps {
namespace append_attending {
namespace {

// The lengths stay those before the call until all work that reads them is done.
detail::AppendWork without_advance(detail::AppendWork append) {
  append.advance = false;
  return append;
}

void run_on_cpu(const Work& checked) {
  Work work = checked;
  std::vector<std::byte> rotated(work.rotates_q() ? work.options.q.bytes() : 0);
  if (work.rotates_q()) work.rotate_into(rotated.data());
  detail::compute_append_kv(without_advance(work.append));
  detail::compute_attention(work.attention);
  if (work.append.advance) detail::advance_lengths(work.append);
}

// With `memory` for the workspace.
void run_on_gpu(Work work, std::byte* memory, const Stream& stream) {
  work.attention.memory = memory;
  if (work.is_fused()) {
    work.attention.append = &work.append;
  } else {
    if (work.rotates_q()) work.rotate_into(memory + work.rotated_at());
    detail::append_kv_portable(without_advance(work.append), stream);
  }
  detail::attention_gpu(work.attention, stream);
  if (work.append.advance) detail::advance_lengths_portable(work.append, stream);
}

}  // namespace
}  // namespace append_attending

void append_attention(const AppendKVOptions& append, const AttentionOptions& attention,
                      const Stream& stream) {
  const append_attending::Work work = append_attending::checked(append, attention, stream.device());
  detail::require_compute(stream.device(), "append_attention");
  attending::require_kernel(work.attention, stream.device());
  if (work.append.sequences == 0 || work.append.rows == 0) return;
  if (append.check || attention.check) {
    stream.impl().refuse_capture("append_attention with `check`, which waits for the lengths,");
    appending::check_places_on(append, work.append, stream);
    attending::check_lengths_on(work.options, work.attention.sequences, work.attention.pages,
                                stream);
  }
  if (stream.device().kind() == DeviceKind::cpu) {
    return stream.call([work] { append_attending::run_on_cpu(work); });
  }
  if (work.attention.memory != nullptr) {
    return append_attending::run_on_gpu(work, work.attention.memory, stream);
  }
  const detail::Scratch scratch(*attention.pool, work.workspace_bytes(), stream);
  append_attending::run_on_gpu(work, scratch.data(), stream);
}

std::size_t append_attention_workspace_bytes(const AppendKVOptions& append,
                                             const AttentionOptions& attention) {
  return append_attending::workspace_bytes(append, attention);
}

}  // namespace ps
