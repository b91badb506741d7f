#include "ops/transform/half.h"

#include <bit>
#include <cmath>

namespace ps::detail {

float widen(BF16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

void narrow(float x, BF16& to) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U), quiet = bits | 0x400000U;
  to.bits = static_cast<std::uint16_t>((std::isnan(x) ? quiet : rounded) >> 16);
}

float widen(F16 x) {
  const std::uint32_t sign = (x.bits & 0x8000U) << 16, exponent = (x.bits >> 10) & 0x1FU,
                      fraction = x.bits & 0x3FFU;
  if (exponent == 0x1F) {  // infinity, or NaN, which becomes quiet
    const std::uint32_t quiet = fraction != 0 ? 0x400000U : 0;
    return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13) | quiet);
  }
  if (exponent == 0) {  // zero, or a number below 2^-14
    const float small = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -small : small;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

void narrow(float x, F16& to) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000U, size = bits & 0x7FFFFFFFU;
  std::uint32_t result = 0;
  if (size > 0x7F800000U) {  // NaN
    result = 0x7E00U | ((size >> 13) & 0x3FFU);
  } else if (size >= 0x477FF000U) {  // from the middle above the largest on: infinity
    result = 0x7C00U;
  } else if (size < 0x38800000U) {  // below 2^-14 there are multiples of 2^-24
    result = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(std::bit_cast<float>(size), 24)));
  } else {
    result = (size - 0x38000000U + 0xFFFU + ((size >> 13) & 1U)) >> 13;
  }
  to.bits = static_cast<std::uint16_t>(sign | result);
}

}  // namespace ps::detail
