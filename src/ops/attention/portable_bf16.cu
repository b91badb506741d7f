#include "ops/attention/portable.cuh"

namespace ps::detail {

void attention_portable_bf16(const AttentionWork& work, cudaStream_t stream) {
  portable_attention::run<__nv_bfloat16>(work, stream);
}

}  // namespace ps::detail
