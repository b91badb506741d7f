// The products without overlap.
#include "ops/moe/sm90_launch.cuh"

namespace ps::detail {

void moe_products_sequential_sm90(const MoeWork& work, Place place, cudaStream_t stream) {
  run_products<MoeSequential>(work, place, stream);
}

}  // namespace ps::detail
