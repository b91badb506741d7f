#include "ops/gemm/gpu.h"
#include "ops/launch.h"
#include "penstock/host/cuda.h"

namespace ps::detail {

void gemm_gpu(const GemmWork& work, GemmKernel kernel, const Stream& stream) {
  const CurrentGpu current(stream.device());
  if (kernel == GemmKernel::portable) return gemm_portable(work, cuda_stream(stream));
  const auto run = work.type == DType::f16 ? gemm_sm90_f16 : gemm_sm90_bf16;
  run(work, kernel, stream.device().place(), cuda_stream(stream));
}

}  // namespace ps::detail
