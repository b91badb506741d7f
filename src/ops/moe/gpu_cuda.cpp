#include "ops/launch.h"
#include "ops/moe/gpu.h"
#include "penstock/host/cuda.h"

namespace ps::detail {

void moe_plan_gpu(const MoeWork& work, bool and_experts, const Stream& stream) {
  const cuda::Guard current(backend_of(stream.device()));
  moe_sort(work, and_experts, cuda_stream(stream));
}

void moe_experts_gpu(const MoeWork& work, bool planned, const Stream& stream) {
  const cuda::Guard current(backend_of(stream.device()));
  if (!planned) moe_list(work, cuda_stream(stream));
  if (work.slot_count == 0) return;  // no expert is there, and there is no tensor to load from
  auto* const products =
      work.kernel == MoeKernel::sequential ? moe_products_sequential_sm90 : moe_products_sm90;
  products(work, stream.device().place(), cuda_stream(stream));
}

void moe_combine_gpu(const MoeWork& work, const Stream& stream) {
  const cuda::Guard current(backend_of(stream.device()));
  moe_add_up(work, cuda_stream(stream));
}

}  // namespace ps::detail
