#include <cuda_bf16.h>

#include "ops/gemm/sm90.cuh"

namespace ps::detail {

void gemm_sm90_bf16(const GemmWork& work, GemmKernel kernel, Place place, cudaStream_t stream) {
  run_gemm_sm90<__nv_bfloat16>(work, kernel, place, stream);
}

}  // namespace ps::detail
