// The products without overlap: one slot in the ring, and stores that are waited for.
#include "ops/moe/sm90_launch.cuh"

namespace ps::detail {

void moe_products_sequential_sm90(const MoeWork& work, Place place, cudaStream_t stream) {
  run_products<1, 1>(work, place, stream);
}

}  // namespace ps::detail
