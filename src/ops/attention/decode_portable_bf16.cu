#include "ops/attention/decode_portable.cuh"

namespace ps::detail {

void attention_decode_portable_bf16(const AttentionWork& work, cudaStream_t stream) {
  decoding::run_portable<__nv_bfloat16, decoding::DecodeCall>(work, stream);
}

}  // namespace ps::detail
