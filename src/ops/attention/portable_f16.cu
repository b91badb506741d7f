#include "ops/attention/portable.cuh"

namespace ps::detail {

void attention_portable_f16(const AttentionWork& work, cudaStream_t stream) {
  portable_attention::run<__half>(work, stream);
}

}  // namespace ps::detail
