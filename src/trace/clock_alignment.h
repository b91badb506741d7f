// Lines that turn the clocks of multiprocessors into nanoseconds of the timer that they share.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "penstock/base/kernel_record.h"
#include "penstock/trace/kernel_trace.h"

namespace ps::detail {

// What is known of one multiprocessor's clock, and the first and last time that it has to tell.
struct ClockSamples {
  std::vector<ClockPair> pairs;
  std::uint64_t first = UINT64_MAX, last = 0;
};

// Nanoseconds after the first pair of all, by a clock.
struct ClockLine {
  std::uint64_t clock = 0;
  double ns = 0;
  double ns_per_clock = 0;

  double exactly(std::uint64_t at) const {
    return ns + ns_per_clock * static_cast<double>(static_cast<std::int64_t>(at - clock));
  }
  std::int64_t at(std::uint64_t moment) const { return std::llround(exactly(moment)); }
};

struct ClockAlignment {
  std::map<unsigned, ClockLine> lines;  // by multiprocessor; none where it has too few pairs
  ClockError error;
  std::size_t pairs = 0;
  std::int64_t tick_ns = 0;
};

// Throws InvalidArgument, naming "buffer", where the pairs do not align a single clock or make no
// sense.
ClockAlignment align_clocks(const std::map<unsigned, ClockSamples>& clocks);

}  // namespace ps::detail
