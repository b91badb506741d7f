// The kernels of attention() for Hopper, which are not emulated.
#include <stdexcept>

#include "ops/attention/decode.h"
#include "ops/attention/gpu.h"

namespace ps::detail {
namespace {

[[noreturn]] void refuse() { throw std::logic_error("kernels for Hopper are not emulated"); }

}  // namespace

void attention_sm90(const AttentionWork&, Place, cudaStream_t) { refuse(); }
void attention_decode_sm90_bf16(const AttentionWork&, Place, cudaStream_t) { refuse(); }
void attention_decode_sm90_f16(const AttentionWork&, Place, cudaStream_t) { refuse(); }
void attention_append_decode_sm90_bf16(const AttentionWork&, Place, cudaStream_t) { refuse(); }
void attention_append_decode_sm90_f16(const AttentionWork&, Place, cudaStream_t) { refuse(); }

}  // namespace ps::detail
