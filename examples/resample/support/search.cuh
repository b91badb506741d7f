// A warp's search for one target.
#pragma once

#include "penstock/kit/warp.cuh"
#include "resample/support/sample.cuh"

namespace ladder::resample {

// The last of the times that is not later than t; -1 where all are. By all lanes together, for one
// t: they look at 32 places at once and count those that are not later, so that every round leaves
// a thirty-second part.
__device__ inline int last_not_later(const Times& times, float t) {
  constexpr int lanes = ps::kit::warp_threads;
  int low = -1, high = static_cast<int>(times.count);  // it is not later at low, and later at high
  while (high - low > 1) {
    const int step = (high - low - 1 + lanes - 1) / lanes;
    const int place = low + step * (static_cast<int>(ps::kit::lane_index()) + 1);
    const unsigned votes = __ballot_sync(0xffffffffu, place < high && times[place] <= t);
    low += step * __popc(votes);
    high = low + step < high ? low + step : high;
  }
  return low;
}

// The sample of one target, known to all lanes: one computes the weight and tells the others.
template <class Element>
__device__ inline Sample<Element> find_by_warp(const Work& work, unsigned target) {
  const unsigned episode = target / work.targets;
  const Times times = times_of(work, episode);
  const float t = work.at[target];
  const int last = last_not_later(times, t);
  Sample<Element> sample{};
  if (ps::kit::lane_index() == 0) {
    sample = sample_after<Element>(times, episode * work.samples, last, t);
  }
  return {__shfl_sync(0xffffffffu, sample.row, 0), __shfl_sync(0xffffffffu, sample.weight, 0)};
}

}  // namespace ladder::resample
