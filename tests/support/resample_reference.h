// What resample should give, by looking at every sample for every element: arithmetic and search
// that share nothing with the library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/ops/resample.h"
#include "support/elements.h"

namespace ps::test {

// A time of any type, exactly. i64 counts in `ticks`.
struct Moment {
  long double value = 0;
  std::int64_t ticks = 0;
};

inline Moment moment(std::uint64_t bits, DType type) {
  if (type == DType::i64) {
    const auto ticks = static_cast<std::int64_t>(bits);
    return {static_cast<long double>(ticks), ticks};
  }
  if (type == DType::f64) return {std::bit_cast<double>(bits), 0};
  return {std::bit_cast<float>(static_cast<std::uint32_t>(bits)), 0};
}

inline double number(std::uint64_t bits, DType type) {
  if (type == DType::f64) return std::bit_cast<double>(bits);
  return decoded(static_cast<std::uint32_t>(bits), type);
}

inline std::uint64_t bits_of_number(double x, DType type) {
  if (type == DType::f64) return std::bit_cast<std::uint64_t>(x);
  return encoded(rounded(x, type), type);
}

// An element's bits, some NaN, or a number within a tolerance.
struct Wanted {
  std::optional<std::uint64_t> bits{};
  bool nan = false;
  long double about = 0, tolerance = 0;
};

inline bool fits(const Wanted& wanted, std::uint64_t bits, DType type) {
  if (wanted.bits) return bits == *wanted.bits;
  const double x = number(bits, type);
  if (wanted.nan) return std::isnan(x);
  return std::abs(x - wanted.about) <= wanted.tolerance;
}

inline std::string in_words(const Wanted& wanted, DType type) {
  if (wanted.nan) return "NaN";
  if (!wanted.bits) {
    return std::to_string(wanted.about) + " +- " +
           std::to_string(static_cast<double>(wanted.tolerance));
  }
  return std::to_string(*wanted.bits) +
         (is_floating(type) ? " = " + std::to_string(number(*wanted.bits, type)) : " in bits");
}

// The two samples that count for a wanted time, of an episode's times; one where they are the same.
struct Around {
  bool missing = false, within = false;
  std::int64_t first = 0, second = 0;  // first == second: that sample
  bool before = false;
};

inline Around around(const std::vector<Moment>& times, const Moment& t, Outside outside) {
  Around found;
  if (times.empty() || std::isnan(t.value)) return {.missing = true};
  // Of samples that share a time, the last.
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (i + 1 == times.size() || times[i + 1].value != times[i].value) {
      kept.push_back(static_cast<std::int64_t>(i));
    }
  }
  const auto at = [&](std::int64_t i) { return times[static_cast<std::size_t>(i)].value; };
  std::optional<std::int64_t> earlier, later;
  for (const std::int64_t i : kept) {
    if (at(i) <= t.value) earlier = i;
    if (!later && at(i) >= t.value) later = i;
  }
  found.within = earlier && later;
  if (found.within) return found.first = *earlier, found.second = *later, found;
  found.before = !earlier;
  const bool line = outside == Outside::extrapolate && kept.size() > 1;
  const std::size_t end = kept.size() - 1;
  if (found.before) {
    found.first = kept[0];
    found.second = line ? kept[1] : kept[0];
  } else {
    found.first = line ? kept[end - 1] : kept[end];
    found.second = kept[end];
  }
  return found;
}

// (t - a) / (b - a) as promised: each difference rounded to f64 once.
inline double promised_weight(const Moment& a, const Moment& b, const Moment& t, DType type) {
  if (type == DType::i64) {
    const auto minus = [](const Moment& x, const Moment& y) {
      const long double exact =
          x.ticks >= y.ticks ? static_cast<long double>(static_cast<std::uint64_t>(x.ticks) -
                                                        static_cast<std::uint64_t>(y.ticks))
                             : -static_cast<long double>(static_cast<std::uint64_t>(y.ticks) -
                                                         static_cast<std::uint64_t>(x.ticks));
      return static_cast<double>(exact);
    };
    return minus(t, a) / minus(b, a);
  }
  const auto x = static_cast<double>(a.value), y = static_cast<double>(b.value),
             z = static_cast<double>(t.value);
  return (z - x) / (y - x);
}

inline long double exact_difference(const Moment& x, const Moment& y, DType type) {
  if (type != DType::i64) return x.value - y.value;
  return static_cast<long double>(static_cast<std::uint64_t>(x.ticks) -
                                  static_cast<std::uint64_t>(y.ticks));
}

inline bool is_nearer(const Moment& a, const Moment& b, const Moment& t, DType type) {
  if (std::isinf(b.value)) return false;
  if (std::isinf(a.value)) return true;
  return exact_difference(b, t, type) < exact_difference(t, a, type);
}

inline Wanted wanted_linear(std::uint64_t first, std::uint64_t second, double w, DType type) {
  const double x = number(first, type), y = number(second, type);
  double result = 0;
  if (size_of(type) == 2) {
    const auto a = static_cast<float>(x), b = static_cast<float>(y);
    result = std::fma(static_cast<float>(w), b - a, a);
  } else {
    result = std::fma(w, y - x, x);
    if (type == DType::f32) result = static_cast<float>(result);
  }
  if (std::isnan(result)) return {.nan = true};
  return {.bits = bits_of_number(result, type)};
}

// Part `part` of a quaternion of four.
inline Wanted wanted_slerp(const std::vector<std::uint64_t>& first,
                           const std::vector<std::uint64_t>& second, std::size_t part, double w,
                           DType type) {
  long double x[4], y[4], of_x = 0, of_y = 0, cosine = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    x[i] = number(first[i], type);
    y[i] = number(second[i], type);
    of_x += x[i] * x[i];
    of_y += y[i] * y[i];
    cosine += x[i] * y[i];
  }
  cosine /= std::sqrt(of_x * of_y);
  const long double sign = cosine < 0 ? -1 : 1;
  const long double angle = std::acos(std::min(std::abs(cosine), 1.0L)), sine = std::sin(angle);
  const long double p = std::sin((1 - w) * angle) / sine, q = std::sin(w * angle) / sine;
  long double length = 0, result[4];
  for (std::size_t i = 0; i < 4; ++i) {
    const long double from = x[i] / std::sqrt(of_x), to = sign * y[i] / std::sqrt(of_y);
    result[i] = angle < 1e-7L ? from + w * (to - from) : p * from + q * to;
    length += result[i] * result[i];
  }
  const long double value = result[part] / std::sqrt(length);
  if (std::isnan(value)) return {.nan = true};
  // The arithmetic's own error grows with the angle it goes; the result's rounding does not.
  const long double steps = 1 + std::abs(w);
  const long double arithmetic = size_of(type) == 2 ? 0x1p-21L : 0x1p-50L;
  const long double unit =
      type == DType::f64 ? 0x1p-52L
                         : static_cast<long double>(spacing(static_cast<double>(value), type));
  return {.about = value, .tolerance = unit * 0.51L + arithmetic * steps};
}

}  // namespace ps::test
