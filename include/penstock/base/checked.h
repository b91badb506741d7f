// Size arithmetic that reports overflow instead of wrapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "penstock/base/error.h"

namespace ps {

// a * b; throws InvalidArgument naming `argument` when the product does not fit.
inline std::size_t checked_mul(std::size_t a, std::size_t b, std::string_view argument) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    detail::throw_invalid(argument, "a size below 2^64 bytes",
                          std::to_string(a) + " * " + std::to_string(b));
  }
  return product;
}

// a + b; throws InvalidArgument naming `argument` when the sum does not fit.
inline std::size_t checked_add(std::size_t a, std::size_t b, std::string_view argument) {
  std::size_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    detail::throw_invalid(argument, "a size below 2^64 bytes",
                          std::to_string(a) + " + " + std::to_string(b));
  }
  return sum;
}

// a / b, rounded up.
constexpr std::size_t ceil_div(std::size_t a, std::size_t b) { return a / b + (a % b != 0); }

// `value` rounded up to a multiple of `alignment`, a power of two. Throws InvalidArgument naming
// `argument` when the result does not fit.
inline std::size_t align_up(std::size_t value, std::size_t alignment, std::string_view argument) {
  return checked_add(value, alignment - 1, argument) & ~(alignment - 1);
}

}  // namespace ps
