// Approximations that are one instruction each.
#pragma once

namespace ps::kit {

// 2^x, with a relative error of up to 2^-22. Results below 2^-126 are 0.
__device__ inline float exp2_approximate(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// 1 / x, with an error of at most one unit in the last place. Results below 2^-126 are 0.
__device__ inline float reciprocal_approximate(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace ps::kit
