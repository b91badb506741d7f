#include "ops/arguments.h"
#include "ops/transform/transform.h"

namespace ps::detail {

void transform_portable(const TransformWork&, const Stream& stream) {
  throw_no_cuda(stream.device(), "transform");
}

bool transform_sm90(const TransformWork&, const Stream&) { return false; }

}  // namespace ps::detail
