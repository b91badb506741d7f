// What the resample ladder computes on: the shapes, times of two kinds, and how many bytes it takes
// to resample them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/base/dtype.h"

namespace ladder::resample {

struct Shape {
  unsigned episodes = 0, samples = 0, targets = 0, columns = 0;
  ps::DType type = ps::DType::bf16;  // of values and results, or f32
  bool ragged = false;               // episodes of 50 to `samples` samples, else of so many each
};

enum class Clock : unsigned char {
  regular,  // samples at a fixed rate, a tenth of a step off at most; targets at another
  random,   // both at sorted random times
};

// "256, 500 to 256, 256, regular": episodes, samples, targets, columns. "256, 50-1000 to ..." where
// episodes differ in length; "..., 64 f32, regular" where values are not of bf16.
std::string name(const Shape& shape, Clock clock);

struct Data {
  Shape shape = {};
  std::vector<std::uint16_t> values = {};  // bits of numbers between -1 and 1; an f32 has two words
  std::vector<float> times = {}, at = {};
  std::vector<std::int32_t> lengths = {};  // of ragged episodes; behind them all is NaN

  unsigned samples_of(std::size_t episode) const {
    return lengths.empty() ? shape.samples : static_cast<unsigned>(lengths[episode]);
  }
};

// The same for the same arguments.
Data make_data(const Shape& shape, Clock clock);

// What ps::resample makes of it on the CPU, in words as the values.
std::vector<std::uint16_t> expected(const Data& data);

// Bytes that resampling must move: of the rows that the targets refer to every sector of 32 bytes
// once, of the episodes' own times, lengths, targets and results each.
std::size_t least_bytes(const Data& data);

}  // namespace ladder::resample
