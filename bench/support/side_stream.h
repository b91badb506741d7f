// The other way to bring slots back, which the library does not use: a driver callback on a stream
// of its own, behind an event. Measured beside the library's, so that the choice stays a measured
// one.
#pragma once

#include <cstddef>

#include "penstock/base/view.h"
#include "penstock/host/device.h"

namespace bench {

struct SideStreamTimes {
  double seconds = 0;
  double p50_us = 0, p99_us = 0;  // from completion on the device to reusable
};

// Copies `batches` batches from page-locked slots to `target`, whose size is a slot's.
SideStreamTimes recycle_by_side_stream(const ps::Device& device, ps::MemoryView target,
                                       std::size_t slots, int batches);

}  // namespace bench
