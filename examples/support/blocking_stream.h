// Streams as cudaStreamCreate() makes them: they and the legacy default stream wait for each other.
// Penstock's own are non-blocking and do not; this exists to show the difference.
#pragma once

#include <memory>

#include "penstock/host/stream.h"

namespace ladder {

// The stream lives as long as `owner`. GPUs only; throws Unsupported elsewhere.
struct BlockingStream {
  std::shared_ptr<void> owner;
  ps::Stream stream;
};
BlockingStream make_blocking_stream(const ps::Device& device);

// The legacy default stream. GPUs only; throws Unsupported elsewhere.
ps::Stream legacy_stream(const ps::Device& device);

}  // namespace ladder
