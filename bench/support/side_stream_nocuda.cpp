#include "penstock/base/error.h"
#include "support/side_stream.h"

namespace bench {

SideStreamTimes recycle_by_side_stream(const ps::Device& /*device*/, ps::MemoryView /*target*/,
                                       std::size_t /*slots*/, int /*batches*/) {
  throw ps::Unsupported("driver callbacks are CUDA's; this build has none");
}

}  // namespace bench
