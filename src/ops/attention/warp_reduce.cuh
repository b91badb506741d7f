// The maximum and the sum over the lanes of a warp, which all lanes get.
#pragma once

#include "penstock/kit/warp.cuh"

namespace ps::detail {

__device__ inline float warp_max(float x) {
  for (unsigned other = kit::warp_threads / 2; other > 0; other /= 2) {
    x = fmaxf(x, __shfl_xor_sync(~0U, x, other));
  }
  return x;
}
__device__ inline float warp_sum(float x) {
  for (unsigned other = kit::warp_threads / 2; other > 0; other /= 2) {
    x += __shfl_xor_sync(~0U, x, other);
  }
  return x;
}

}  // namespace ps::detail
