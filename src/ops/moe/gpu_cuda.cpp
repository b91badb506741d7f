#include "ops/launch.h"
#include "ops/moe/gpu.h"
#include "penstock/host/cuda.h"

namespace ps::detail {
namespace {

// The same work, by the portable kernels where no others can do it.
MoeWork runnable(MoeWork work, const Device& device) {
  const bool hopper =
      device.capabilities().compute_major == 9 && device.capabilities().compute_minor == 0;
  if (work.type == DType::f32 || !hopper) work.kernel = MoeKernel::portable;
  return work;
}

}  // namespace

void moe_plan_gpu(const MoeWork& work, bool and_experts, const Stream& stream) {
  const cuda::Guard current(backend_of(stream.device()));
  moe_sort(runnable(work, stream.device()), and_experts, cuda_stream(stream));
}

void moe_experts_gpu(const MoeWork& asked, bool planned, const Stream& stream) {
  const cuda::Guard current(backend_of(stream.device()));
  const MoeWork work = runnable(asked, stream.device());
  if (!planned) moe_list(work, cuda_stream(stream));
  if (work.slot_count == 0) return;  // no expert is there, and there is no tensor to load from
  auto* const products = work.kernel == MoeKernel::portable     ? moe_products_portable
                         : work.kernel == MoeKernel::sequential ? moe_products_sequential_sm90
                                                                : moe_products_sm90;
  products(work, stream.device().place(), cuda_stream(stream));
}

void moe_combine_gpu(const MoeWork& work, const Stream& stream) {
  const cuda::Guard current(backend_of(stream.device()));
  moe_add_up(work, cuda_stream(stream));
}

}  // namespace ps::detail
