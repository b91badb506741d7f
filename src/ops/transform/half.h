// Numbers of 16 bits on the CPU, one at a time. To 16 bits they round to the nearest, ties to even;
// NaN becomes a quiet NaN.
#pragma once

#include <cstdint>

namespace ps::detail {

struct F16 {
  std::uint16_t bits = 0;
};
struct BF16 {
  std::uint16_t bits = 0;
};

float widen(F16 x);
float widen(BF16 x);
inline float widen(float x) { return x; }

void narrow(float x, F16& to);
void narrow(float x, BF16& to);
inline void narrow(float x, float& to) { to = x; }

}  // namespace ps::detail
