// f on the device: the arithmetic that all rungs do.
#pragma once

#include "copy/support/work.h"
#include "penstock/ops/iterate.h"

namespace ladder::copy {

// Elements of x are independent chains: a multiply-add takes four cycles, so that a
// multiprocessor's scheduler needs four chains, from its warps together, to be busy in each.
template <int count>
__device__ __forceinline__ void f(float (&x)[count], int rounds) {
  // Some 256 instructions to a turn of the loop, but no more than the balanced count of rounds.
  constexpr int unrolled = count >= 32 ? 8 : count >= 16 ? 16 : 32;
#pragma unroll unrolled
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int e = 0; e < count; ++e) x[e] = __fmaf_rn(ps::iterate_scale, x[e], ps::iterate_shift);
  }
}

__device__ __forceinline__ float f(float value, int rounds) {
  float x[1] = {value};
  f(x, rounds);
  return x[0];
}

// f of `vectors` vectors at once.
template <int vectors>
__device__ __forceinline__ void f(float4 (&v)[vectors], int rounds) {
  float x[4 * vectors];
#pragma unroll
  for (int i = 0; i < vectors; ++i) {
    x[4 * i] = v[i].x, x[4 * i + 1] = v[i].y, x[4 * i + 2] = v[i].z, x[4 * i + 3] = v[i].w;
  }
  f(x, rounds);
#pragma unroll
  for (int i = 0; i < vectors; ++i) {
    v[i] = make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
  }
}

__device__ __forceinline__ float4 f(float4 value, int rounds) {
  float4 v[1] = {value};
  f(v, rounds);
  return v[0];
}

// What the stencil starts from.
__device__ __forceinline__ float mean(float above, float x, float below) {
  return __fmaf_rn(0.5F, x, __fmul_rn(0.25F, __fadd_rn(above, below)));
}

}  // namespace ladder::copy
