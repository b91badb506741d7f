#include "ops/moe/routing.h"

#include <algorithm>

#include "host/flag.h"
#include "ops/moe/arguments.h"

namespace ps::detail {
namespace {

bool on_cpu(const Stream& stream) { return stream.device().kind() == DeviceKind::cpu; }

template <class Id>
void count(const Id* ids, std::int64_t pairs, std::int64_t experts, const MoeRouting& to) {
  std::fill_n(to.rows, experts, 0U);
  for (std::int64_t i = 0; i < pairs; ++i) {
    if (ids[i] >= 0 && ids[i] < experts) ++to.rows[ids[i]];
  }
  set_flag(to.flag, to.value);
}

}  // namespace

void moe_publish_rows(const MoeOptions& options, const MoeRouting& to, const Stream& stream) {
  const MoeWork work = mixture::checked(options, mixture::Workspace::given, stream.device());
  const std::uint32_t* offsets = work.space.expert_offsets(work.memory);
  const std::int64_t experts = work.experts;
  if (!on_cpu(stream)) return moe_publish_rows_gpu(offsets, experts, to, stream);
  stream.call([offsets, experts, to] {
    for (std::int64_t e = 0; e < experts; ++e) to.rows[e] = offsets[e + 1] - offsets[e];
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

void moe_take_slots(const std::int32_t* from, const TensorView& slots, const Stream& stream) {
  if (!on_cpu(stream)) return moe_take_slots_gpu(from, slots, stream);
  stream.call([from, to = static_cast<std::int32_t*>(slots.data()), count = slots.elements()] {
    std::copy_n(from, count, to);
  });
}

void moe_load_kernels(const MoeOptions& options, const Stream& stream) {
  if (!on_cpu(stream)) moe_load_kernels_gpu(options, stream);
}

}  // namespace ps::detail
