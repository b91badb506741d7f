#include <cuda_bf16.h>

#include "ops/attention/sm90_launch.cuh"

namespace ps::detail {

template void attention_sm90<__nv_bfloat16, true>(const AttentionWork&, Place, cudaStream_t);

}  // namespace ps::detail
