// The kit's approximations for emulated kernels, with the last digits of f32.
#pragma once

#include <cmath>

namespace ps::kit {

inline float exp2_approximate(float x) {
  const float result = std::exp2(x);
  return result < 0x1p-126F ? 0.F : result;
}

inline float reciprocal_approximate(float x) { return 1.F / x; }

}  // namespace ps::kit
