// Finding: the times around the place where targets may have their samples come into shared memory
// in one piece, so that no search goes to memory step by step.
#pragma once

#include <limits>

#include "ops/resample/gpu.cuh"
#include "penstock/kit/address.cuh"
#include "penstock/kit/cp_async.cuh"

namespace ps::resampling {

// Some of an episode's times, in shared memory; one that is later than all stands behind them.
template <class Time>
struct Near {
  static constexpr Time latest = std::numeric_limits<Time>::has_infinity
                                     ? std::numeric_limits<Time>::infinity()
                                     : std::numeric_limits<Time>::max();
  // They come in vectors of 16 bytes, so that there may be more than were asked for.
  static constexpr int of_vector = 16 / sizeof(Time), most = 1023 - 2 * of_vector;
  static constexpr int room(int count) { return (count / of_vector + 3) * of_vector; }

  const Time* times = nullptr;
  int low = 0, count = 0;
  bool ends = false;  // with the episode's last
};

// Asks for `count` of them, at most `most`, from `low` on. They are there when all threads have
// waited for their copies and for each other. `room` begins at 16 bytes.
template <unsigned threads, class Time>
__device__ inline Near<Time> fetch_near(Time* room, const Times<Time>& times, int low, int count,
                                        unsigned thread) {
  constexpr int of_vector = Near<Time>::of_vector;
  const auto number = static_cast<int>(thread);
  const Time* from = times.first + low * times.stride;
  const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(from) % 16 / sizeof(Time));
  if (times.stride == 1 && past <= low) [[likely]] {
    low -= past;
    from -= past;
    count += past;
    // Nothing of so many that they are no int; then few are asked for, or none.
    const int left = static_cast<int>(times.count) - low;
    const int vectors = max(min((count + of_vector - 1) / of_vector, left / of_vector), 0);
#pragma unroll 1
    for (int i = number; i < vectors; i += static_cast<int>(threads)) {
      kit::cp_async<16>(room + i * of_vector, from + i * of_vector);
    }
    count = max(count, vectors * of_vector);
    const int last = vectors * of_vector + number;
    if (last < count) kit::cp_async<sizeof(Time)>(room + last, from + last);
  } else {
#pragma unroll 1
    for (int i = number; i < count; i += static_cast<int>(threads)) {
      kit::cp_async<sizeof(Time)>(room + i, from + i * times.stride);
    }
  }
  if (thread == 0) room[count] = Near<Time>::latest;
  return {room, low, count, low + count == times.count};
}

// How many of them are not later than t. Looks at three at once, a known distance apart: the way to
// the answer is what everyone waits for. By addresses, since places would be turned into them each
// time.
template <class Time>
__device__ inline int not_later(const Near<Time>& near, Time t) {
  constexpr unsigned size = sizeof(Time);
  const unsigned begin = kit::shared_address(near.times);
  const unsigned end = begin + static_cast<unsigned>(near.count) * size;
  unsigned passed = begin;
  const auto skip = [&](unsigned step) {
    unsigned next = passed;
#pragma unroll
    for (unsigned k = 1; k <= 3; ++k) {
      const unsigned look = min(passed + (k * step - 1) * size, end);
      const auto* time = static_cast<const Time*>(__cvta_shared_to_generic(look));
      if (*time <= t) next = passed + k * step * size;
    }
    passed = next;
  };
  if (near.count > 255) skip(256);
  if (near.count > 63) skip(64);
  skip(16);
  skip(4);
  skip(1);
  return static_cast<int>((min(passed, end) - begin) / size);
}

// A target time between two neighbours with finite times: the first's, or later; not the second's.
// Or one beyond the first or last sample, which `earlier` is then: t is a, and b says nothing.
template <class Time>
struct Between {
  int earlier;
  Time a, b, t;
  bool inside;

  __device__ bool within() const { return inside; }
  __device__ PickIn<int> pick(Interpolation mode, Outside) const {
    if (t == a || mode == Interpolation::previous) return copy_of(earlier);
    if (mode == Interpolation::next) return copy_of(earlier + 1);
    return pick_of(earlier, earlier + 1, a, b, t, mode);
  }
};
// Any other, in times that lie anywhere.
template <class Time>
struct Elsewhere {
  Times<Time> times;
  Located at;
  Time t;

  __device__ bool within() const { return at.where == Where::within; }
  __device__ Pick pick(Interpolation mode, Outside outside) const {
    return resampling::pick(at, times, t, mode, outside);
  }
};

// Where a target time lies by the times at hand, `passed` of which are not later. Nearly all lie
// between two of them: that is compiled for itself, with short places. `beyond`: so are those
// beyond the first and the last, which every episode may have; it takes a register.
template <class Time>
struct Sight {
  Between<Time> found;
  bool clear;
};
template <bool beyond, class Time>
__device__ inline Sight<Time> sight(const Near<Time>& near, int passed, Time t, Outside outside) {
  const int earlier = passed - 1, first = max(earlier, 0);
  const Time a = near.times[first], b = near.times[passed];
  bool is_between = earlier >= 0 && passed < near.count && a <= t && t < b;
  if constexpr (!std::is_integral_v<Time>) {
    is_between = is_between && -Near<Time>::latest < a && b < Near<Time>::latest;
  }
  const bool is_beyond = beyond && outside == Outside::clamp && near.count > 0 && t == t &&
                         a == a &&
                         (passed == 0 ? near.low == 0 : passed == near.count && near.ends);
  return {{first, a, b, is_beyond ? a : t, is_between || t == a}, is_between || is_beyond};
}

// Any other: by the times at hand where they tell, else by a search of `all` from these on.
// `shift`: the number that the first sample has which it counts from.
template <class Time>
struct Search {
  Elsewhere<Time> found;
  std::int64_t shift;
};
template <class Time>
__device__ inline Search<Time> search(const Near<Time>& near, const Times<Time>& all, int passed,
                                      Time t, Outside outside) {
  // A line through the first or the last two needs both of them.
  const bool line = outside == Outside::extrapolate;
  const bool enough = near.count > 1 || (near.low == 0 && near.ends);
  if (enough && (near.low == 0 || passed > 0) && (near.ends || passed < near.count)) {
    const Times<Time> some{near.times, 1, near.count};
    return {{some, located(some, t, passed - 1, line), t}, near.low};
  }
  return {{all, locate(all, t, std::int64_t{near.low} + max(passed - 1, 0), line), t}, 0};
}

}  // namespace ps::resampling
