// The products without overlap.
#include "ops/moe/sm90_launch.cuh"

namespace ps::detail {

void moe_products_sequential_sm90(const MoeWork& work, Place place, cudaStream_t stream) {
  using Kernel = MoeSequential;
  if (work.type == DType::f16) {
    run_products_of<MoeConfig<__half, Kernel::depth>, Kernel::pieces>(work, place, stream);
  } else {
    run_products_of<MoeConfig<__nv_bfloat16, Kernel::depth>, Kernel::pieces>(work, place, stream);
  }
}

}  // namespace ps::detail
