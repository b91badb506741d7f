#include "ops/arguments.h"
#include "ops/route/work.h"

namespace ps::detail {

void route_portable(const RouteWork&, const Stream& stream) {
  throw_no_cuda(stream.device(), "route");
}

}  // namespace ps::detail
