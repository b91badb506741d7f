#include "penstock/base/error.h"
#include "support/spin.h"

namespace ladder::detail {

void spin_cuda(const SpinOptions&, const ps::Stream&) {
  throw ps::Unsupported("spin: this build has no CUDA; use the CPU device");
}

std::size_t most_shared_bytes_cuda(const ps::Device&) { return 0; }

}  // namespace ladder::detail
