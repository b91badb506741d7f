#include "penstock/base/error.h"
#include "support/blocking_stream.h"

namespace ladder {

BlockingStream make_blocking_stream(const ps::Device& device) {
  throw ps::Unsupported("blocking streams on " + device.name() + ": this build has no CUDA");
}

ps::Stream legacy_stream(const ps::Device& device) {
  throw ps::Unsupported("the legacy stream on " + device.name() + ": this build has no CUDA");
}

}  // namespace ladder
