#include "ops/moe/routing.h"

#include <algorithm>
#include <cstring>

#include "host/flag.h"
#include "ops/arguments.h"
#include "ops/moe/arguments.h"

namespace ps::detail {
namespace {

template <class Id>
void count(const Id* ids, std::int64_t pairs, std::int64_t experts, const MoeRouting& to) {
  std::fill_n(to.rows, experts, 0U);
  for (std::int64_t i = 0; i < pairs; ++i) {
    if (ids[i] >= 0 && ids[i] < experts) ++to.rows[ids[i]];
  }
  set_flag(to.flag, to.value);
}

std::int32_t expert_of(const MoeWork& work, std::int64_t pair) {
  const std::int64_t id = work.id_type == DType::i64
                              ? static_cast<const std::int64_t*>(work.ids)[pair]
                              : std::int64_t{static_cast<const std::int32_t*>(work.ids)[pair]};
  return id >= 0 && id < work.experts ? static_cast<std::int32_t>(id) : -1;
}

void publish_tokens(const MoeWork& work, const MoeRouting& to) {
  const std::size_t element = size_of(work.type);
  const std::size_t bytes = static_cast<std::size_t>(work.hidden) * element;
  for (std::int64_t t = 0; t < work.tokens; ++t) {
    const auto* from =
        static_cast<const std::byte*>(work.x) + t * work.x_row * static_cast<std::int64_t>(element);
    std::memcpy(static_cast<std::byte*>(to.x) + static_cast<std::size_t>(t) * bytes, from, bytes);
  }
  for (std::int64_t i = 0; i < work.rows(); ++i) to.ids[i] = expert_of(work, i);
}

void take_rows(const MoeWork& work, const MoeHostRows& from) {
  const std::uint32_t* source = work.space.source_pairs(work.memory);
  const std::uint32_t rows = work.space.expert_offsets(work.memory)[work.experts];
  const std::size_t bytes = static_cast<std::size_t>(work.hidden) * size_of(work.type);
  for (std::uint32_t row = 0; row < rows; ++row) {
    const std::int32_t there = from.place[source[row]];
    if (there < 0) continue;
    std::memcpy(work.space.y_rows(work.memory) + row * bytes,
                static_cast<const std::byte*>(from.y) + static_cast<std::size_t>(there) * bytes,
                bytes);
    work.space.pair_rows(work.memory)[source[row]] = static_cast<std::int32_t>(row);
  }
}

}  // namespace

void moe_publish_rows(const MoeOptions& options, const MoeRouting& to, const Stream& stream) {
  const MoeWork work = mixture::checked(options, mixture::Workspace::given, stream.device());
  if (!on_cpu(stream)) return moe_publish_rows_gpu(work, to, stream);
  stream.call([work, to] {
    const std::uint32_t* offsets = work.space.expert_offsets(work.memory);
    for (std::int64_t e = 0; e < work.experts; ++e) to.rows[e] = offsets[e + 1] - offsets[e];
    if (to.x != nullptr) publish_tokens(work, to);
    set_flag(to.flag, to.value);
  });
}

void moe_publish_ids(const TensorView& ids, std::int64_t experts, const MoeRouting& to,
                     const Stream& stream) {
  if (!on_cpu(stream)) return moe_publish_ids_gpu(ids, experts, to, stream);
  stream.call([data = ids.data(), type = ids.dtype(), pairs = ids.elements(), experts, to] {
    if (type == DType::i64)
      return count(static_cast<const std::int64_t*>(data), pairs, experts, to);
    count(static_cast<const std::int32_t*>(data), pairs, experts, to);
  });
}

void moe_load_publish_ids(const Device& device) {
  if (device.kind() != DeviceKind::cpu) moe_load_publish_ids_gpu(device);
}

void moe_take_slots(const std::int32_t* from, const TensorView& slots, const Stream& stream) {
  if (!on_cpu(stream)) return moe_take_slots_gpu(from, slots, stream);
  stream.call([from, to = static_cast<std::int32_t*>(slots.data()), count = slots.elements()] {
    std::copy_n(from, count, to);
  });
}

void moe_take_rows(const MoeOptions& options, const MoeHostRows& from, const Stream& stream) {
  const MoeWork work = mixture::checked(options, mixture::Workspace::given, stream.device());
  if (!on_cpu(stream)) return moe_take_rows_gpu(work, from, stream);
  stream.call([work, from] { take_rows(work, from); });
}

void moe_load_kernels(const MoeOptions& options, const Stream& stream) {
  if (!on_cpu(stream)) moe_load_kernels_gpu(options, stream);
}

}  // namespace ps::detail
