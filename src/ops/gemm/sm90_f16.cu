#include <cuda_fp16.h>

#include "ops/gemm/sm90.cuh"

namespace ps::detail {

void gemm_sm90_f16(const GemmWork& work, GemmKernel kernel, Place place, cudaStream_t stream) {
  run_gemm_sm90<__half>(work, kernel, place, stream);
}

}  // namespace ps::detail
