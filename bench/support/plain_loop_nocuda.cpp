#include "penstock/base/error.h"
#include "support/plain_loop.h"

namespace bench {

struct PlainLoop::Parts {};

PlainLoop::PlainLoop(const ps::Yardstick& /*yardstick*/, const PlainLoopOptions& /*options*/) {
  throw ps::Unsupported("the plain loop is CUDA's; this build has none");
}
PlainLoop::~PlainLoop() = default;
void PlainLoop::run() {}

}  // namespace bench
