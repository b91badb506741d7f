// What the resample ladder computes on: the shapes, times of two kinds, and how many bytes it takes
// to resample them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ladder::resample {

struct Shape {
  unsigned episodes = 0, samples = 0, targets = 0, columns = 0;
};

enum class Clock : unsigned char {
  regular,  // samples at a fixed rate, a tenth of a step off at most; targets at another
  random,   // both at sorted random times
};

// "256, 500 to 256, 256, regular": episodes, samples, targets, columns.
std::string name(const Shape& shape, Clock clock);

struct Data {
  Shape shape = {};
  std::vector<std::uint16_t> values = {};  // of bf16, between -1 and 1
  std::vector<float> times = {}, at = {};
};

// The same for the same arguments.
Data make_data(const Shape& shape, Clock clock);

// What ps::resample makes of it on the CPU.
std::vector<std::uint16_t> expected(const Data& data);

// Bytes that resampling must move: of the rows that the targets refer to every sector of 32 bytes
// once, of times, targets and results each.
std::size_t least_bytes(const Data& data);

}  // namespace ladder::resample
