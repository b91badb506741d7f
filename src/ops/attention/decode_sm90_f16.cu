#include "ops/attention/decode_sm90.cuh"

namespace ps::detail {

void attention_decode_sm90_f16(const AttentionWork& work, Place place, cudaStream_t stream) {
  decoding::run_sm90<__half, decoding::DecodeCall>(work, place, stream);
}

}  // namespace ps::detail
