#include "ops/moe/portable.cuh"

namespace ps::detail::moe_portable {

void products_f32(const MoeWork& work, cudaStream_t stream) { run_products<float>(work, stream); }

}  // namespace ps::detail::moe_portable
