// Finding: the times around the place where targets may have their samples come into shared memory
// in one piece, so that no search goes to memory step by step.
#pragma once

#include <limits>

#include "ops/resample/gpu.cuh"
#include "penstock/kit/cp_async.cuh"

namespace ps::resampling {

// Some of an episode's times, in shared memory, at most `most`; one that is later than all stands
// behind them.
template <class Time>
struct Near {
  static constexpr int most = 1023;
  static constexpr Time latest = std::numeric_limits<Time>::has_infinity
                                     ? std::numeric_limits<Time>::infinity()
                                     : std::numeric_limits<Time>::max();

  const Time* times = nullptr;
  int low = 0, count = 0;
};

// Asks for them; they are there when all threads have waited for their copies and for each other.
template <unsigned threads, class Time>
__device__ inline Near<Time> fetch_near(Time* to, const Times<Time>& times, int low, int count,
                                        unsigned thread) {
  const Time* from = times.first + (low + static_cast<int>(thread)) * times.stride;
#pragma unroll 1
  for (auto i = static_cast<int>(thread); i < count; i += static_cast<int>(threads)) {
    kit::cp_async<sizeof(Time)>(to + i, from);
    from += threads * times.stride;
  }
  if (thread == 0) to[count] = Near<Time>::latest;
  return {to, low, count};
}

// How many of them are not later than t. Looks at three at once, a known distance apart: the way to
// the answer is what everyone waits for.
template <class Time>
__device__ inline int not_later(const Near<Time>& near, Time t) {
  int passed = 0;
  const auto skip = [&](int step) {
    int parts = 0;
#pragma unroll
    for (int k = 1; k <= 3; ++k) {
      parts += near.times[min(passed + k * step - 1, near.count)] <= t ? 1 : 0;
    }
    passed += parts * step;
  };
  if (near.count > 255) skip(256);
  if (near.count > 63) skip(64);
  skip(16);
  skip(4);
  skip(1);
  return min(passed, near.count);
}

// Gives then(times, shift, at) where a wanted time lies: by the times at hand where they tell, else
// by a search of all from `hint` on. `shift`: the number that the first of the times it is given
// has in the episode. Each is compiled for itself: in the first, places are short and times near.
template <class Time, class Then>
__device__ inline void look(const Times<Time>& times, const Near<Time>& near, Time t,
                            std::int64_t hint, bool line, const Then& then) {
  const bool some = near.count > 0;
  const bool begins = near.low == 0 || (some && near.times[0] <= t);
  const bool ends =
      near.low + near.count == times.count || (some && t < near.times[near.count - 1]);
  // A line through the first or the last two needs both of them.
  const bool enough = near.count > 1 || near.count == times.count;
  if (begins && ends && enough) [[likely]] {
    const Times<Time, int> at_hand{near.times, 1, near.count};
    then(at_hand, near.low, located(at_hand, t, not_later(near, t) - 1, line));
  } else {
    __builtin_assume(__isGlobal(times.first));
    then(times, std::int64_t{0}, locate(times, t, hint, line));
  }
}

}  // namespace ps::resampling
