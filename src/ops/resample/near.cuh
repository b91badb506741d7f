// Finding: the times around the place where targets may have their samples come into shared memory
// in one piece, so that no search goes to memory step by step.
#pragma once

#include <limits>

#include "ops/resample/gpu.cuh"
#include "penstock/kit/cp_async.cuh"

namespace ps::resampling {

// Some of an episode's times, in shared memory. The search looks a little beyond them, at times
// that are later than all.
template <class Time>
struct Near {
  static constexpr int beyond = 12;
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
  if (thread < Near<Time>::beyond) to[count + static_cast<int>(thread)] = Near<Time>::latest;
  return {to, low, count};
}

// How many of them are not later than t. Looks at three at once: the way to the answer is what
// everyone waits for.
template <class Time>
__device__ inline int not_later(const Near<Time>& near, Time t) {
  int begin = 0;
  for (int length = near.count; length > 0;) {
    const int part = (length + 3) / 4;
    const Time* const ends = near.times + begin + part - 1;
    const int passed = static_cast<int>(ends[0] <= t) + static_cast<int>(ends[part] <= t) +
                       static_cast<int>(ends[2 * part] <= t);
    begin += passed * part;
    length = max(part - 1, length - 3 * part);
  }
  return min(begin, near.count);
}

// Where a wanted time lies, and in which times: some at hand, or all. `shift`: the number that the
// first of them has in the episode.
template <class Time>
struct Seen {
  Times<Time> times;
  std::int64_t shift;
  Located at;
};

// By the times at hand where they tell, else by a search of all from `hint` on.
template <class Time>
__device__ inline Seen<Time> look(const Times<Time>& times, const Near<Time>& near, Time t,
                                  std::int64_t hint, bool line) {
  const bool some = near.count > 0;
  const bool begins = near.low == 0 || (some && near.times[0] <= t);
  const bool ends =
      near.low + near.count == times.count || (some && t < near.times[near.count - 1]);
  // A line through the first or the last two needs both of them.
  const bool enough = near.count > 1 || near.count == times.count;
  if (begins && ends && enough) {
    const Times<Time> at_hand{near.times, 1, near.count};
    return {at_hand, near.low, located(at_hand, t, not_later(near, t) - 1, line)};
  }
  __builtin_assume(__isGlobal(times.first));
  return {times, 0, locate(times, t, hint, line)};
}

}  // namespace ps::resampling
