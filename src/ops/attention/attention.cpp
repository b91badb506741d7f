#include "penstock/ops/attention.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
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
using detail::on_cpu;

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
  throw InvalidArgument(
      "kernel", "best or portable, because sm90 " + detail::attention_sm90_limit(work), "sm90");
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

bool has_sm90_type(const AttentionWork& work) { return work.type != DType::f32; }

bool has_sm90_dims(const AttentionWork& work) {
  if (work.dim != work.dim_v) return work.dim == 192 && work.dim_v == 128;
  return work.dim == 64 || work.dim == 96 || work.dim == 128 || work.dim == 256;
}

// Whether boxes of keys and values do not cross pages.
bool has_sm90_pages(const AttentionWork& work) {
  return work.pages.table == nullptr || work.pages.rows.value() % 8 == 0;
}

// What a call can have that the sm90 kernels do not take.
enum class Sm90Limit : std::uint8_t { none, type, dims, scale, pages, first_k, q, k, v, out };

Sm90Limit sm90_limit(const AttentionWork& work) {
  if (!has_sm90_type(work)) return Sm90Limit::type;
  if (!has_sm90_dims(work)) return Sm90Limit::dims;
  // The softmax takes the maximum before it scales.
  if (work.softcap == 0 && !(work.scale > 0)) return Sm90Limit::scale;
  if (!has_sm90_pages(work)) return Sm90Limit::pages;
  if (work.pages.table != nullptr && work.sequences.first_k != nullptr) return Sm90Limit::first_k;
  if (!has_map(work.q_strides)) return Sm90Limit::q;
  if (!has_map(work.k_strides)) return Sm90Limit::k;
  if (!has_map(work.v_strides)) return Sm90Limit::v;
  if (!has_map(work.out_strides)) return Sm90Limit::out;
  return Sm90Limit::none;
}

std::string strides_limit(std::string_view name, const AttentionStrides& strides) {
  return fmt::format(
      "needs strides above 0 (of sequences: 0 or more) and below 2^39, and those of "
      "the sequences, rows and heads of {} are {}, {} and {}",
      name, strides.batch, strides.row, strides.head);
}

}  // namespace

bool attention_fits_sm90(const AttentionWork& work) { return sm90_limit(work) == Sm90Limit::none; }

std::string attention_sm90_limit(const AttentionWork& work) {
  switch (sm90_limit(work)) {
    case Sm90Limit::none:
      break;
    case Sm90Limit::type:
      return fmt::format("takes bf16 and f16, and q is {}", name(work.type));
    case Sm90Limit::dims:
      return fmt::format(
          "takes head dimensions of 64, 96, 128, 256, and 192 with 128 for v, and "
          "those of q and v are {} and {}",
          work.dim, work.dim_v);
    case Sm90Limit::scale:
      return fmt::format("without softcap needs a scale above 0, and scale is {}", work.scale);
    case Sm90Limit::pages:
      return fmt::format("takes pages of a multiple of 8 rows, and those of k have {}",
                         work.pages.rows.value());
    case Sm90Limit::first_k:
      return "does not take first_k together with pages";
    case Sm90Limit::q:
      return strides_limit("q", work.q_strides);
    case Sm90Limit::k:
      return strides_limit("k", work.k_strides);
    case Sm90Limit::v:
      return strides_limit("v", work.v_strides);
    case Sm90Limit::out:
      return strides_limit("out", work.out_strides);
  }
  return "";
}

bool attention_decode_fits_sm90(const AttentionWork& work) {
  return has_sm90_type(work) && has_sm90_dims(work) && has_sm90_pages(work) &&
         has_map(work.k_strides) && has_map(work.v_strides);
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
  if (work.memory != nullptr || detail::on_cpu(stream)) return attending::run(work, stream);
  const detail::Scratch scratch(*options.pool, work.memory_bytes(), stream);
  work.memory = scratch.data();
  attending::run(work, stream);
}

}  // namespace ps
