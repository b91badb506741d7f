#include "ops/transform/transform.h"
#include "penstock/base/error.h"

namespace ps::detail {

void transform_portable(const TransformWork&, const Stream& stream) {
  throw Unsupported(
      "transform on " + stream.device().name() +
      ": this build has no CUDA; build with -DPENSTOCK_CUDA=ON, or use the CPU device");
}

bool transform_sm90(const TransformWork&, const Stream&) { return false; }

}  // namespace ps::detail
