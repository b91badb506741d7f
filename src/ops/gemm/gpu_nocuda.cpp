#include "ops/arguments.h"
#include "ops/gemm/work.h"

namespace ps::detail {

void gemm_gpu(const GemmWork&, GemmKernel, const Stream& stream) {
  throw_no_cuda(stream.device(), "gemm");
}

}  // namespace ps::detail
