// Rows that move whole: of one sensor whose columns are side by side and have one mode, any but
// slerp. What the kernels for them share: the work, finding a target's samples, moving rows.
#pragma once

#include <limits>

#include "ops/resample/element.cuh"
#include "ops/resample/gpu.cuh"
#include "penstock/kit/cp_async.cuh"

namespace ps::resampling {

// Strides of values and results are in bytes.
struct WholeWork {
  detail::SensorWork sensor;
  const void* at;
  std::int64_t at_episode, at_target;
  unsigned char* out;
  std::int64_t out_episode, out_target;
  bool* valid;
  std::int64_t valid_episode, valid_target;
  std::uint64_t fill, missing;  // bits of an element, filling 8 bytes
  unsigned targets;             // of an episode
  unsigned vectors;             // of a row
  kit::Divisor by_vectors{1};
  float even;  // what even_place() wants
  int margin;  // times before and behind the place where a target's may be
  Interpolation mode;
  Outside outside;
};

// Rows of these elements are blended, or copied whatever they are.
template <class Element>
__device__ inline Interpolation mode_of(const WholeWork& work) {
  return std::is_same_v<Element, Moved> ? work.mode : Interpolation::linear;
}

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

struct WholeFound {
  Where where;
  Pick pick;
};

// By the times at hand where they tell, else by a search of all.
template <class Time>
__device__ inline WholeFound find(const Times<Time>& times, const Near<Time>& near, Time t,
                                  int hint, Interpolation mode, Outside outside) {
  const bool line = outside == Outside::extrapolate;
  const bool begins = near.low == 0 || (near.count > 0 && near.times[0] <= t);
  const bool ends =
      near.low + near.count == times.count || (near.count > 0 && t < near.times[near.count - 1]);
  if (begins && ends) {
    const Times<Time> some{near.times, 1, near.count};
    const Located at = located(some, t, not_later(near, t) - 1, line);
    Pick picked = pick(at, some, t, mode, outside);
    picked.first += near.low;
    return {at.where, picked};
  }
  const Located at = locate(times, t, hint, line);
  return {at.where, pick(at, times, t, mode, outside)};
}

// Where rows of values lie.
struct GlobalRows {
  template <unsigned bytes>
  static __device__ Vector<bytes> load(const unsigned char* from) {
    __builtin_assume(__isGlobal(from));
    return *reinterpret_cast<const Vector<bytes>*>(from);
  }
};
struct AnyRows {
  template <unsigned bytes>
  static __device__ Vector<bytes> load(const unsigned char* from) {
    return *reinterpret_cast<const Vector<bytes>*>(from);
  }
};

// What a target's row is made of: a row of values, blended with the next one where weight is not 0.
// Two addresses are no rows.
template <class Number>
struct alignas(16) Source {
  const unsigned char* row;
  Number weight;

  static __device__ const unsigned char* missing() { return nullptr; }
  static __device__ const unsigned char* fill() {
    return reinterpret_cast<const unsigned char*>(1);
  }
  __device__ bool is_row() const { return reinterpret_cast<std::uintptr_t>(row) > 1; }
};

// `rows`: of the episode.
template <class Number>
__device__ inline Source<Number> source_of(const Pick& picked, const unsigned char* rows,
                                           std::int64_t sample) {
  if (picked.action == Action::missing) return {Source<Number>::missing(), 0};
  if (picked.action == Action::fill) return {Source<Number>::fill(), 0};
  const bool blends = picked.action == Action::blend;
  return {rows + picked.first * sample, blends ? static_cast<Number>(picked.weight) : Number{0}};
}

// Makes the rows of `targets`, from `out` on. `plain`: all of them are made of rows.
template <class Rows, class Element, unsigned bytes, unsigned threads, unsigned at_once>
__device__ inline void make_rows(const WholeWork& work, const Source<NumberOf<Element>>* sources,
                                 unsigned targets, unsigned char* out, bool plain,
                                 unsigned thread) {
  using Number = NumberOf<Element>;
  constexpr bool moves = std::is_same_v<Element, Moved>;
  const unsigned all = targets * work.vectors, row = work.vectors * bytes;
  // From one vector of a thread to its next: rows, and bytes of one.
  const unsigned step = work.by_vectors.divide(threads);
  const unsigned rest = (threads - step * work.vectors) * bytes;
  unsigned target = work.by_vectors.divide(thread);
  unsigned at = (thread - target * work.vectors) * bytes;
  const auto advance = [&] {
    const bool wraps = at + rest >= row;
    target += step + (wraps ? 1 : 0);
    at += rest - (wraps ? row : 0);
  };

  // A few vectors of a thread are under way at once.
  unsigned i = thread;
  if (plain) {
    for (; i + (at_once - 1) * threads < all; i += at_once * threads) {
      Vector<bytes> x[at_once], y[at_once];
      Number weight[at_once];
      unsigned char* to[at_once];
#pragma unroll
      for (unsigned k = 0; k < at_once; ++k) {
        const Source<Number> from = sources[target];
        weight[k] = from.weight;
        to[k] = out + target * work.out_target + at;
        x[k] = Rows::template load<bytes>(from.row + at);
        if constexpr (!moves) {
          const std::int64_t later = from.weight != 0 ? work.sensor.value_sample : 0;
          y[k] = Rows::template load<bytes>(from.row + later + at);
        }
        advance();
      }
#pragma unroll
      for (unsigned k = 0; k < at_once; ++k) {
        if constexpr (!moves) {
          const Vector<bytes> blend = blended_vector<Element>(x[k], y[k], weight[k]);
          x[k] = weight[k] != 0 ? blend : x[k];
        }
        store(to[k], x[k]);
      }
    }
  }
  for (; i < all; i += threads) {
    const Source<Number> from = sources[target];
    Vector<bytes> x;
    if (from.is_row()) {
      x = Rows::template load<bytes>(from.row + at);
      if constexpr (!moves) {
        if (from.weight != 0) {
          const auto y = Rows::template load<bytes>(from.row + work.sensor.value_sample + at);
          x = blended_vector<Element>(x, y, from.weight);
        }
      }
    } else {
      const bool fills = from.row == Source<Number>::fill();
      x = repeated<bytes>(fills ? work.fill : work.missing);
    }
    store(out + target * work.out_target + at, x);
    advance();
  }
}

}  // namespace ps::resampling
