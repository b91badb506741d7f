#include "ops/attention/decode_portable.cuh"

namespace ps::detail {

void attention_append_decode_portable_f16(const AttentionWork& work, cudaStream_t stream) {
  decoding::run_portable<__half, decoding::AppendDecodeCall>(work, stream);
}

}  // namespace ps::detail
