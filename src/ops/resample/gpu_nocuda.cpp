#include "ops/resample/work.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

[[noreturn]] void refuse(const Stream& stream) {
  throw Unsupported(
      "resample on " + stream.device().name() +
      ": this build has no CUDA; build with -DPENSTOCK_CUDA=ON, or use the CPU device");
}

}  // namespace

void resample_gpu(const ResampleWork&, const Stream& stream) { refuse(stream); }

ResampleFault check_resample_gpu(const ResampleWork&, ResampleChecks, const Stream& stream) {
  refuse(stream);
}

void resample_gradient_gpu(const ResampleWork&, const Stream& stream) { refuse(stream); }

}  // namespace ps::detail
