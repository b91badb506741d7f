#include "ops/arguments.h"
#include "ops/round_routes/work.h"

namespace ps::detail {

void round_routes_portable(const RoundingWork&, const Stream& stream) {
  throw_no_cuda(stream.device(), "round_routes");
}

}  // namespace ps::detail
