// What resampling computes, for the CPU and GPUs alike. Products that are summed are fused by name
// and nothing is left for a compiler to contract, so that both give the same bits (slerp aside,
// whose sines are the platform's).
//
// For times that decrease or are NaN `locate` gives some samples of the episode.
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

// The times of one episode. `Index`: what holds their numbers.
template <class T, class Index = std::int64_t>
struct Times {
  const T* first = nullptr;
  Index stride = 1, count = 0;

  PENSTOCK_HD T operator[](Index i) const { return first[i * stride]; }
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

enum class Where : std::uint8_t { missing, before, within, after };

// Where a target time lies, and the samples around it, neighbours; the same twice where it is one's
// very time, of several the last. Before or after all: the two that a line goes through, if that
// was asked for and there are two, else the outermost twice.
template <class Index>
struct LocatedIn {
  Where where = Where::missing;
  Index earlier = 0, later = 0;
};
using Located = LocatedIn<std::int64_t>;

// `i`: the last sample that is not later than t, or -1.
template <class T, class Index>
PENSTOCK_HD inline LocatedIn<Index> located(const Times<T, Index>& times, T t,
                                            std::type_identity_t<Index> i, bool line) {
  if (times.count == 0 || t != t) return {};
  const Index two = line && times.count > 1 ? 1 : 0;
  if (i < 0) return {Where::before, 0, two};
  if (times[i] == t) return {Where::within, i, i};
  if (i + 1 < times.count) return {Where::within, i, i + 1};
  return {Where::after, i - two, i};
}

template <class T>
PENSTOCK_HD inline Located locate(const Times<T>& times, T t, std::int64_t hint, bool line) {
  if (times.count == 0 || t != t) return {};
  const std::int64_t i = last_of(times.count, hint, [&](std::int64_t k) { return times[k] <= t; });
  return located(times, t, i, line);
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

// What a target time makes of its episode in some mode: a copy of the first sample, or the first
// blended with the second.
template <class Index>
struct PickIn {
  Action action = Action::missing;
  Index first = 0, second = 0;
  double weight = 0;
};
using Pick = PickIn<std::int64_t>;

template <class Index>
PENSTOCK_HD inline PickIn<Index> copy_of(Index sample) {
  return {Action::copy, sample, sample, 0};
}

// Of two samples with the times a < b, which are finite, in a mode that depends on them.
template <class T, class Index>
PENSTOCK_HD inline PickIn<Index> pick_of(Index earlier, Index later, T a, T b, T t,
                                         Interpolation mode) {
  if (mode == Interpolation::nearest) return copy_of(later_is_nearer(a, b, t) ? later : earlier);
  const double weight = weight_of(a, b, t);
  if (weight == 0) return copy_of(earlier);
  return {Action::blend, earlier, later, weight};
}

template <class T, class Index>
PENSTOCK_HD inline PickIn<Index> pick(const LocatedIn<Index>& at, const Times<T, Index>& times, T t,
                                      Interpolation mode, Outside outside) {
  if (at.where == Where::missing) return {};
  if (at.where != Where::within && outside == Outside::fill) return {Action::fill};
  const bool blends = mode == Interpolation::linear || mode == Interpolation::slerp;
  if (at.where == Where::before && !blends) return copy_of(at.earlier);
  if (at.where == Where::after && !blends) return copy_of(at.later);
  if (at.earlier == at.later || mode == Interpolation::previous) return copy_of(at.earlier);
  if (mode == Interpolation::next) return copy_of(at.later);

  const T a = times[at.earlier], b = times[at.later];
  if (!(a < b)) return copy_of(at.where == Where::before ? at.earlier : at.later);  // no line
  if constexpr (!std::is_integral_v<T>) {  // infinity is farther than any other time
    if (std::isinf(b)) return copy_of(at.earlier);
    if (std::isinf(a)) return copy_of(at.later);
  }
  return pick_of(at.earlier, at.later, a, b, t, mode);
}

// By half turns on a GPU: what reduces large angles there takes registers from everyone.
PENSTOCK_HD inline double sine(double angle) {
#if defined(__CUDA_ARCH__)
  return sinpi(angle * 0.31830988618379067154);
#else
  return std::sin(angle);
#endif
}
PENSTOCK_HD inline float sine(float angle) {
#if defined(__CUDA_ARCH__)
  return sinpif(angle * 0.318309886F);
#else
  return std::sin(angle);
#endif
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
  const T angle = 2 * std::atan2(length(rest), length(sum)), whole = sine(angle);
  if (whole > 0) {
    const T of_from = sine((1 - w) * angle) / whole, of_to = sine(w * angle) / whole;
    for (int i = 0; i < 4; ++i) result[i] = fused(of_to, to[i], of_from * from[i]);
  } else {
    for (int i = 0; i < 4; ++i) result[i] = fused(w, rest[i], from[i]);
  }
  // So many turns away that the sines of all parts are nought: any is as good.
  const T of_result = length(result);
  for (int i = 0; i < 4; ++i) result[i] = of_result == 0 ? from[i] : result[i] / of_result;
}

}  // namespace ps::resampling
