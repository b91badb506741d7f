#include "ops/iterate/iterate.h"
#include "penstock/base/error.h"

namespace ps::detail {

void iterate_portable(const IterateWork&, const Stream& stream) {
  throw Unsupported(
      "iterate on " + stream.device().name() +
      ": this build has no CUDA; build with -DPENSTOCK_CUDA=ON, or use the CPU device");
}

}  // namespace ps::detail
