#include "ops/moe/portable.cuh"

namespace ps::detail::moe_portable {

void products_f16(const MoeWork& work, cudaStream_t stream) { run_products<__half>(work, stream); }

}  // namespace ps::detail::moe_portable
