// The data that overlap is measured on: random input and an output buffer in page-locked memory, a
// result buffer on the device, and the check of the results.
#pragma once

#include <cstddef>

#include "penstock/base/view.h"
#include "penstock/host/buffer.h"

namespace ps {

// `memory` as a one-dimensional f32 view.
TensorView floats(MemoryView memory);

// Throws std::runtime_error unless `out` equals iterated(in, rounds), compared bit by bit for
// `samples` elements, the first and last included. Both are host memory of equal size.
void check_iterated(MemoryView out, MemoryView in, int rounds, std::size_t samples = 2048);

class Yardstick {
 public:
  // Throws InvalidArgument unless `bytes` is a multiple of 4 above 0, OutOfMemory.
  Yardstick(const Device& device, std::size_t bytes);

  const Device& device() const { return device_; }
  std::size_t bytes() const { return input_.bytes(); }
  MemoryView input() const { return input_.view(); }    // page-locked
  MemoryView output() const { return output_.view(); }  // page-locked
  MemoryView result() const { return result_.view(); }  // on the device

  // Fills output and result with NaN, so that elements that are never written fail the check.
  void poison() const;

  // check_iterated() of output, or of result, which check_result() first copies to output.
  void check_output(int rounds) const;
  void check_result(int rounds) const;

 private:
  Device device_;
  PinnedBuffer input_, output_;
  DeviceBuffer result_;
};

}  // namespace ps
