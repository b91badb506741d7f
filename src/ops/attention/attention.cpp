#include "penstock/ops/attention.h"

#include <vector>

#include "host/backend.h"
#include "ops/arguments.h"
#include "ops/attention/arguments.h"
#include "ops/attention/lengths.h"
#include "ops/attention/work.h"
#include "ops/scratch.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"

namespace ps {
namespace attending {
namespace {

using detail::AttentionPages;
using detail::AttentionSequences;
using detail::AttentionWork;

bool on_cpu(const Stream& stream) { return stream.device().kind() == DeviceKind::cpu; }

// The entries of `pages`, and what lies between them: a row of memory.
MemoryView span_of(const TensorView& pages) {
  MemoryView span{static_cast<std::byte*>(pages.data()), 0, pages.place()};
  if (pages.elements() == 0) return span;
  const std::int64_t entries = (pages.extent(0) - 1) * pages.strides()[0] + pages.extent(1);
  span.bytes = static_cast<std::size_t>(entries) * sizeof(std::int32_t);
  return span;
}

void run(const AttentionWork& work, const Stream& stream) {
  if (on_cpu(stream)) return detail::attention_cpu(work, stream);
  detail::attention_gpu(work, stream);
}

}  // namespace

void require_kernel(const AttentionWork& work, const Device& device) {
  detail::require_compute(device, "attention");
  if (device.kind() == DeviceKind::cpu) return;
  const bool decodes =
      work.kernel == AttentionKernel::decode || work.kernel == AttentionKernel::decode_portable;
  constexpr std::int64_t most_rows = 1 << 30;  // queries times query heads of a head of k
  if (decodes && std::int64_t{work.sequences.max_q} * work.group() > most_rows) {
    throw InvalidArgument("kernel", "best or portable, for very many queries",
                          work.kernel == AttentionKernel::decode ? "decode" : "decode_portable");
  }
  if (work.kernel != AttentionKernel::sm90) return;
  detail::require_compute(device, "attention",
                          {.major = 9,
                           .minor = 0,
                           .or_later = false,
                           .kernel = "sm90",
                           .instead = "use kernel portable or best"});
  if (detail::attention_fits_sm90(work)) return;
  throw InvalidArgument("kernel",
                        "best or portable, for f32, for head dimensions other than 64, 96, 128, "
                        "192 with 128 for v, and 256, for strides that are not positive, and for "
                        "pages of other than a multiple of 8 rows or with first_k",
                        "sm90");
}

void check_lengths_on(const AttentionOptions& options, AttentionSequences sequences,
                      AttentionPages pages, const Stream& stream) {
  stream.impl().refuse_capture("attention with `check`, which waits for the lengths,");
  if (on_cpu(stream)) {
    stream.synchronize();
    return check_lengths(sequences, pages);
  }
  std::vector<PinnedBuffer> copies;
  const auto copied = [&](const MemoryView& memory) -> const std::int32_t* {
    if (memory.bytes == 0) return memory.as<const std::int32_t>();
    copies.emplace_back(stream.device(), memory.bytes);
    copy(copies.back().view(), memory, stream);
    return copies.back().view().as<const std::int32_t>();
  };
  sequences.cu_q = copied(options.cu_q.memory());
  sequences.cu_k = copied(options.cu_k.memory());
  sequences.first_k = copied(options.first_k.memory());
  sequences.lengths_k = copied(options.lengths_k.memory());
  pages.table = copied(span_of(options.pages));
  stream.synchronize();
  check_lengths(sequences, pages);
}

}  // namespace attending

namespace detail {
namespace {

// Whether a tensor map describes the rows of a tensor.
bool has_map(const AttentionStrides& strides) {
  constexpr std::int64_t most_stride = std::int64_t{1} << 39;  // elements of 2 bytes
  for (const std::int64_t stride : {strides.row, strides.head}) {
    if (stride <= 0 || stride >= most_stride) return false;
  }
  return strides.batch >= 0 && strides.batch < most_stride;
}

bool has_sm90_dims(const AttentionWork& work) {
  const bool dims = work.dim == work.dim_v
                        ? work.dim == 64 || work.dim == 96 || work.dim == 128 || work.dim == 256
                        : work.dim == 192 && work.dim_v == 128;
  return dims && work.type != DType::f32;
}

// Whether tensor maps describe k and v, and the boxes that they load do not cross pages.
bool has_maps_of_keys(const AttentionWork& work) {
  const bool in_boxes = work.pages.table == nullptr || work.pages.rows.value() % 8 == 0;
  return in_boxes && has_map(work.k_strides) && has_map(work.v_strides);
}

}  // namespace

bool attention_fits_sm90(const AttentionWork& work) {
  const bool has_pages = work.pages.table != nullptr;
  return has_sm90_dims(work) && has_maps_of_keys(work) &&
         (!has_pages || work.sequences.first_k == nullptr) && has_map(work.q_strides) &&
         has_map(work.out_strides);
}

bool attention_decode_fits_sm90(const AttentionWork& work) {
  return has_sm90_dims(work) && has_maps_of_keys(work);
}

}  // namespace detail

std::size_t attention_workspace_bytes(const AttentionOptions& options) {
  return attending::sized_work(options).memory_bytes();
}

void attention(const AttentionOptions& options, const Stream& stream) {
  detail::AttentionWork work = attending::checked(options, stream.device());
  if (work.sequences.count == 0 || work.sequences.q_rows == 0) return;
  attending::require_kernel(work, stream.device());
  if (options.check) attending::check_lengths_on(options, work.sequences, work.pages, stream);
  if (work.memory != nullptr || attending::on_cpu(stream)) return attending::run(work, stream);
  const detail::Scratch scratch(*options.pool, work.memory_bytes(), stream);
  work.memory = scratch.data();
  attending::run(work, stream);
}

}  // namespace ps
