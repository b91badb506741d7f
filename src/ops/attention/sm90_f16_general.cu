#include <cuda_fp16.h>

#include "ops/attention/sm90_launch.cuh"

namespace ps::detail {

template void attention_sm90<__half, true>(const AttentionWork&, Place, cudaStream_t);

}  // namespace ps::detail
