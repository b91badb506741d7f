// Elements of f32, f16 and bf16 for tests, by arithmetic that shares nothing with the library's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "penstock/base/dtype.h"

namespace ps::test {

// Digits after the leading one, smallest and largest exponent, bytes of one element.
struct Format {
  int digits, lowest, highest;
  std::size_t bytes;
};
inline Format format_of(DType type) {
  if (type == DType::f16) return {10, -14, 15, 2};
  if (type == DType::bf16) return {7, -126, 127, 2};
  return {23, -126, 127, 4};
}

// The number of the type that is nearest to x, ties to even; past the largest, infinity.
inline double rounded(double x, DType type) {
  if (!std::isfinite(x) || x == 0) return x;
  const Format f = format_of(type);
  const int exponent = std::max(std::ilogb(x), f.lowest);
  const double unit = std::ldexp(1.0, exponent - f.digits);
  const double result = std::nearbyint(x / unit) * unit;
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, -f.digits), f.highest);
  return std::abs(result) > largest ? std::copysign(INFINITY, x) : result;
}

// The distance to the next number of the type, at x.
inline double spacing(double x, DType type) {
  const Format f = format_of(type);
  const int exponent = x == 0 || !std::isfinite(x) ? f.lowest : std::max(std::ilogb(x), f.lowest);
  return std::ldexp(1.0, exponent - f.digits);
}

inline double decoded(std::uint32_t bits, DType type) {
  const Format f = format_of(type);
  const int width = type == DType::f32 ? 32 : 16;
  const int field = width - 1 - f.digits;
  const std::uint32_t fraction = bits & ((1U << f.digits) - 1);
  const auto exponent = static_cast<int>((bits >> f.digits) & ((1U << field) - 1));
  const double sign = (bits >> (width - 1)) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << field) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  }
  if (exponent == 0) return sign * std::ldexp(fraction, f.lowest - f.digits);
  return sign * std::ldexp(fraction + (1U << f.digits), exponent - f.highest - f.digits);
}

// Of an x that the type has exactly, or NaN.
inline std::uint32_t encoded(double x, DType type) {
  const Format f = format_of(type);
  const int width = type == DType::f32 ? 32 : 16;
  const int field = width - 1 - f.digits;
  const std::uint32_t sign = std::signbit(x) ? 1U << (width - 1) : 0;
  const std::uint32_t top = ((1U << field) - 1) << f.digits;
  if (std::isnan(x)) return top | (1U << (f.digits - 1));
  if (std::isinf(x)) return sign | top;
  if (x == 0) return sign;
  const int exponent = std::max(std::ilogb(x), f.lowest);
  const auto digits = static_cast<std::uint32_t>(
      std::ldexp(std::abs(x), f.digits - exponent));  // with the leading one, if there is one
  const std::uint32_t one = 1U << f.digits;
  if (digits < one) return sign | digits;
  return sign | (static_cast<std::uint32_t>(exponent + f.highest) << f.digits) | (digits - one);
}

// `count` elements of a type, `offset` elements behind a 64-byte boundary, with a margin of poison
// before and behind.
class Elements {
 public:
  static constexpr std::uint8_t poison = 0xA5;
  static constexpr std::size_t margin = 64;

  Elements(DType type, std::size_t count, std::size_t offset = 0)
      : type_(type),
        count_(count),
        begin_(margin + offset * element_bytes()),
        bytes_(begin_ + count * element_bytes() + 2 * margin + 64, poison) {
    const auto past = reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64;
    begin_ += (64 - past) % 64;
  }

  DType type() const { return type_; }
  std::size_t size() const { return count_; }
  void* data() { return bytes_.data() + begin_; }

  std::uint32_t bits(std::size_t i) const {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes_.data() + begin_ + i * element_bytes(), element_bytes());
    return value;
  }
  void set_bits(std::size_t i, std::uint32_t value) {
    std::memcpy(bytes_.data() + begin_ + i * element_bytes(), &value, element_bytes());
  }
  double operator[](std::size_t i) const { return decoded(bits(i), type_); }
  void set(std::size_t i, double x) { set_bits(i, encoded(rounded(x, type_), type_)); }

  bool margins_untouched() const {
    const std::size_t end = begin_ + count_ * element_bytes();
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if ((i < begin_ || i >= end) && bytes_[i] != poison) return false;
    }
    return true;
  }

 private:
  // At most four, as the compiler can see: a copy of an element stays inside its bits.
  std::size_t element_bytes() const { return format_of(type_).bytes; }

  DType type_;
  std::size_t count_, begin_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace ps::test
