// How one ceiling is sampled: a small warm-up tells how much fits the time, then equal repetitions.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "penstock/measure/limits.h"

namespace ps::detail {

struct SamplingPlan {
  int repetitions = 7;
  double seconds = 1;           // for all repetitions together
  std::size_t least_bytes = 0;  // of one repetition
  std::size_t most_bytes = 0;   // of one repetition
  std::size_t granule = 1;      // repetitions are a multiple of this
};

// Called before every repetition with the share done so far; throws to cancel.
using Tick = std::function<void(double)>;

// Moves so many bytes and says how long it took.
using Move = std::function<double(std::size_t)>;

// The size of a repetition, from what a first one took: within the plan's bounds and granule.
std::size_t repetition_bytes(const SamplingPlan& plan, std::size_t warm_bytes, double warm_seconds);

// `counted` is the number of bytes that count for each byte moved: 2 for a copy within one memory.
// Throws Unsupported when the clock does not advance.
Rate sample(const SamplingPlan& plan, int counted, const Move& move, const Tick& tick);

}  // namespace ps::detail
