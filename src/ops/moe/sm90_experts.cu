#include "ops/moe/sm90_launch.cuh"

namespace ps::detail {

void moe_products_sm90(const MoeWork& work, Place place, cudaStream_t stream) {
  run_products<MoeOverlapped>(work, place, stream);
}

}  // namespace ps::detail
