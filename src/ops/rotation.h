// Memory for calls that are timed one after the other.
#pragma once

#include <cstddef>

#include "penstock/host/buffer.h"

namespace ps::detail {

// Sets of device memory that calls take by turns, two or more and together three times the L2
// cache: no call finds in it what an earlier one left there. Filled with random bits.
class Rotation {
 public:
  // Each set begins at a 256-byte boundary. Throws OutOfMemory, DeviceError.
  Rotation(const Device& device, std::size_t bytes);

  MemoryView operator()(std::size_t number) const;
  std::size_t sets() const { return sets_; }

 private:
  std::size_t bytes_, stride_, sets_;
  DeviceBuffer memory_;
};

}  // namespace ps::detail
