#include "ops/arguments.h"
#include "ops/resample/work.h"

namespace ps::detail {

void resample_gpu(const ResampleWork&, const Stream& stream) {
  throw_no_cuda(stream.device(), "resample");
}

ResampleFault check_resample_gpu(const ResampleWork&, ResampleChecks, const Stream& stream) {
  throw_no_cuda(stream.device(), "resample");
}

void resample_gradient_gpu(const ResampleWork&, const Stream& stream) {
  throw_no_cuda(stream.device(), "resample_gradient");
}

}  // namespace ps::detail
