#include "ops/moe/portable.cuh"

namespace ps::detail {

void moe_products_portable(const MoeWork& work, Place, cudaStream_t stream) {
  if (work.type == DType::f32) return moe_portable::products_f32(work, stream);
  if (work.type == DType::f16) return moe_portable::products_f16(work, stream);
  moe_portable::products_bf16(work, stream);
}

}  // namespace ps::detail
