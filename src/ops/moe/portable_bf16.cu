#include "ops/moe/portable.cuh"

namespace ps::detail::moe_portable {

void products_bf16(const MoeWork& work, cudaStream_t stream) {
  run_products<__nv_bfloat16>(work, stream);
}

}  // namespace ps::detail::moe_portable
