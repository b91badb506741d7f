// What resampling computes, for the CPU and GPUs alike. Products that are summed are fused by name
// and nothing is left for a compiler to contract, so that both give the same bits (slerp aside,
// whose sines are the platform's).
//
// Of samples that share one time the last alone counts: `locate` gives no other. For times that
// decrease or are NaN it gives some samples of the episode.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "penstock/kit/config.h"
#include "penstock/ops/resample.h"

namespace ps::resampling {

PENSTOCK_HD inline double fused(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

PENSTOCK_HD inline float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

// x + w (y - x). Of f32 and f64 in f64; of 16 bits in f32, with w rounded to it.
template <class T>
PENSTOCK_HD inline T blended(T x, T y, T w) {
  return fused(w, y - x, x);
}

// The times of one episode.
template <class T>
struct Times {
  const T* first = nullptr;
  std::int64_t stride = 1, count = 0;

  PENSTOCK_HD T operator[](std::int64_t i) const { return first[i * stride]; }
};

// The last of [0, count) for which `holds`, which it does up to some place; -1 where it never does.
// Searched from `hint`, one of them, outwards: near it in a step or two.
template <class Holds>
PENSTOCK_HD inline std::int64_t last_of(std::int64_t count, std::int64_t hint, const Holds& holds) {
  std::int64_t low = -1, high = count;  // it holds at low, or that is -1; not at high
  if (holds(hint)) {
    low = hint;
    for (std::int64_t step = 1; step < high - low; step *= 2) {
      if (!holds(low + step)) {
        high = low + step;
        break;
      }
      low += step;
    }
  } else {
    high = hint;
    for (std::int64_t step = 1; step < high - low; step *= 2) {
      if (holds(high - step)) {
        low = high - step;
        break;
      }
      high -= step;
    }
  }
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    if (holds(middle)) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The last sample of the time that sample i has.
template <class T>
PENSTOCK_HD inline std::int64_t last_at_time_of(const Times<T>& times, std::int64_t i) {
  if (i + 1 >= times.count || !(times[i + 1] <= times[i])) return i;
  const T t = times[i];
  return last_of(times.count, i, [&](std::int64_t k) { return times[k] <= t; });
}

enum class Where : std::uint8_t { missing, before, within, after };

// Where a wanted time lies, and the samples around it; the same twice where it is one's very time.
// Before or after all: the two that a line goes through, if that was asked for and there are two
// times, else the outermost twice.
struct Located {
  Where where = Where::missing;
  std::int64_t earlier = 0, later = 0;
};

template <class T>
PENSTOCK_HD inline Located locate(const Times<T>& times, T t, std::int64_t hint, bool line) {
  if (times.count == 0 || t != t) return {};
  const std::int64_t i = last_of(times.count, hint, [&](std::int64_t k) { return times[k] <= t; });
  if (i < 0) {
    const std::int64_t first = last_at_time_of(times, 0);
    const bool second = line && first + 1 < times.count;
    return {Where::before, first, second ? last_at_time_of(times, first + 1) : first};
  }
  if (times[i] == t) return {Where::within, i, i};
  if (i + 1 < times.count) return {Where::within, i, last_at_time_of(times, i + 1)};
  if (!line) return {Where::after, i, i};
  const T end = times[i];
  const std::int64_t other =
      last_of(times.count, i, [&](std::int64_t k) { return times[k] < end; });
  return {Where::after, other < 0 ? i : other, i};
}

// to - from, the exact one rounded to f64.
PENSTOCK_HD inline double difference(std::int64_t from, std::int64_t to) {
  const auto a = static_cast<std::uint64_t>(from), b = static_cast<std::uint64_t>(to);
  return to >= from ? static_cast<double>(b - a) : -static_cast<double>(a - b);
}
PENSTOCK_HD inline double difference(double from, double to) { return to - from; }

// (t - a) / (b - a), of finite a and b.
template <class T>
PENSTOCK_HD inline double weight_of(T a, T b, T t) {
  using Wide = std::conditional_t<std::is_integral_v<T>, T, double>;
  const double past = difference(Wide(a), Wide(t)), span = difference(Wide(a), Wide(b));
  if constexpr (std::is_same_v<T, double>) {
    // Numbers so large that their differences are none.
    if (!std::isfinite(past) || !std::isfinite(span)) {
      return (t / 2 - a / 2) / (b / 2 - a / 2);
    }
  }
  return past / span;
}

// What b - a loses when it is rounded.
PENSTOCK_HD inline double rest_of_difference(double a, double b) {
  const double rounded = b - a, back = rounded - b;
  return (b - (rounded - back)) - (a + back);
}

// Whether b is nearer to t than a is, for a < t < b and not both of them infinite.
PENSTOCK_HD inline bool later_is_nearer(std::int64_t a, std::int64_t b, std::int64_t t) {
  const auto from = static_cast<std::uint64_t>(a), to = static_cast<std::uint64_t>(b),
             at = static_cast<std::uint64_t>(t);
  return to - at < at - from;
}
PENSTOCK_HD inline bool later_is_nearer(double a, double b, double t) {
  const double past = t - a, left = b - t;
  if (!std::isfinite(past) || !std::isfinite(left)) return b / 2 - t / 2 < t / 2 - a / 2;
  if (past != left) return left < past;
  return rest_of_difference(t, b) < rest_of_difference(a, t);
}

enum class Action : std::uint8_t { missing, fill, copy, blend };

// What a wanted time makes of its episode in some mode: a copy of the first sample, or the first
// blended with the second.
struct Pick {
  Action action = Action::missing;
  std::int64_t first = 0, second = 0;
  double weight = 0;
};

template <class T>
PENSTOCK_HD inline Pick pick(const Located& at, const Times<T>& times, T t, Interpolation mode,
                             Outside outside) {
  const auto copy = [](std::int64_t i) { return Pick{Action::copy, i, i, 0}; };
  if (at.where == Where::missing) return {};
  if (at.where != Where::within && outside == Outside::fill) return {Action::fill};
  const bool blends = mode == Interpolation::linear || mode == Interpolation::slerp;
  if (at.where == Where::before && !blends) return copy(at.earlier);
  if (at.where == Where::after && !blends) return copy(at.later);
  if (at.earlier == at.later || mode == Interpolation::previous) return copy(at.earlier);
  if (mode == Interpolation::next) return copy(at.later);

  const T a = times[at.earlier], b = times[at.later];
  if constexpr (!std::is_integral_v<T>) {  // infinity is farther than any other time
    if (std::isinf(b)) return copy(at.earlier);
    if (std::isinf(a)) return copy(at.later);
  }
  if (mode == Interpolation::nearest) {
    return copy(later_is_nearer(a, b, t) ? at.later : at.earlier);
  }
  const double weight = weight_of(a, b, t);
  if (weight == 0) return copy(at.earlier);
  return {Action::blend, at.earlier, at.later, weight};
}

// The unit quaternion that is w of the way from x to y on the shorter arc, and beyond for w outside
// of [0, 1]. The angle comes from the sum and the difference, which keep its digits where the
// product does not; quaternions that are the same have none, and are blended as they are.
template <class T>
PENSTOCK_HD inline void slerp(const T (&x)[4], const T (&y)[4], T w, T (&result)[4]) {
  const auto length = [](const T(&q)[4]) {
    return std::sqrt(fused(q[0], q[0], fused(q[1], q[1], fused(q[2], q[2], q[3] * q[3]))));
  };
  const T of_x = length(x), of_y = length(y);
  const T product = fused(x[0], y[0], fused(x[1], y[1], fused(x[2], y[2], x[3] * y[3])));
  T from[4], to[4], sum[4], rest[4];
  for (int i = 0; i < 4; ++i) {
    from[i] = x[i] / of_x;
    to[i] = (product < 0 ? -y[i] : y[i]) / of_y;
    sum[i] = from[i] + to[i];
    rest[i] = to[i] - from[i];
  }
  const T angle = 2 * std::atan2(length(rest), length(sum)), sine = std::sin(angle);
  if (sine > 0) {
    const T of_from = std::sin((1 - w) * angle) / sine, of_to = std::sin(w * angle) / sine;
    for (int i = 0; i < 4; ++i) result[i] = fused(of_to, to[i], of_from * from[i]);
  } else {
    for (int i = 0; i < 4; ++i) result[i] = fused(w, rest[i], from[i]);
  }
  const T of_result = length(result);
  for (T& part : result) part /= of_result;
}

}  // namespace ps::resampling
