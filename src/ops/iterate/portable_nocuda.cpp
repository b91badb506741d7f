#include "ops/arguments.h"
#include "ops/iterate/iterate.h"

namespace ps::detail {

void iterate_portable(const IterateWork&, const Stream& stream) {
  throw_no_cuda(stream.device(), "iterate");
}

}  // namespace ps::detail
