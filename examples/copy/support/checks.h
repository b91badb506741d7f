// What the ladder measures against and is checked with, on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "penstock/host/stream.h"

namespace ladder::copy {

// Random floats between -2 and 2, the same for the same seed.
void fill_random(float* data, std::size_t count, unsigned seed, cudaStream_t stream);

// Elements that differ in any bit, so that NaN is equal to nothing that it should not be. Waits for
// the stream.
struct Differences {
  std::size_t count = 0;
  std::size_t first = 0;
};
Differences differences(const float* a, const float* b, std::size_t count,
                        const ps::Stream& stream);

// Multiply-adds a second of the whole GPU with nothing else to do: the best of a few shapes.
double multiply_adds_per_second(const ps::Stream& stream, int turns);

}  // namespace ladder::copy
