// The bytes that a ladder moves: random input in page-locked memory, room for the output there and
// on the device, and the check that the right values arrived.
#pragma once

#include <cstddef>

#include "penstock/base/view.h"
#include "penstock/host/buffer.h"

namespace ladder {

// `memory` as a row of floats.
ps::TensorView floats(ps::MemoryView memory);

// Throws std::runtime_error unless `out` is iterated(in, rounds), compared bit by bit at both ends
// and anywhere between, `samples` elements in all. Both are host memory of equal size.
void check_iterated(ps::MemoryView out, ps::MemoryView in, int rounds, std::size_t samples = 2048);

class Data {
 public:
  Data(const ps::Device& device, std::size_t bytes);

  ps::MemoryView input() const { return input_.view(); }    // page-locked
  ps::MemoryView output() const { return output_.view(); }  // page-locked
  ps::MemoryView result() const { return result_.view(); }  // on the device

  // Fill with NaN, so that a piece that is never written cannot pass.
  void poison_output() const;
  void poison_result() const;

  // check_iterated() of output, or of result once it is downloaded into output.
  void check_output(int rounds) const;
  void check_result(int rounds) const;

 private:
  ps::Device device_;
  ps::PinnedBuffer input_, output_;
  ps::DeviceBuffer result_;
};

}  // namespace ladder
