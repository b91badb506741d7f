// Converts the clocks of multiprocessors to nanoseconds of the GPU's global timer.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "penstock/base/kernel_record.h"
#include "penstock/trace/kernel_trace.h"

namespace ps::detail {

// The samples of one multiprocessor's clock, and the first and last clock value to convert.
struct ClockSamples {
  std::vector<ClockPair> pairs;
  std::uint64_t first = UINT64_MAX, last = 0;
};

// A clock's values as nanoseconds since the first sample of all clocks.
struct ClockLine {
  std::uint64_t clock = 0;
  double ns = 0;
  double ns_per_clock = 0;

  std::int64_t at(std::uint64_t value) const {
    const auto clocks = static_cast<double>(static_cast<std::int64_t>(value - clock));
    return std::llround(ns + ns_per_clock * clocks);
  }
};

struct ClockAlignment {
  std::map<unsigned, ClockLine> lines;  // by multiprocessor, if it has enough samples
  ClockError error;
  std::size_t pairs = 0;
  std::int64_t tick_ns = 0;
};

// Throws InvalidArgument, naming "buffer", if no clock can be aligned or a sample is impossible.
ClockAlignment align_clocks(const std::map<unsigned, ClockSamples>& clocks);

}  // namespace ps::detail
