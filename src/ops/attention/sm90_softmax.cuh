// Softmax of scores in wgmma accumulators, block by block.
#pragma once

#include <cstdint>

#include "penstock/kit/math.cuh"
#include "penstock/kit/packed.cuh"

namespace ps::detail {

using kit::exp2_approximate;

// tanh(x) for y = 2 log2(e) x, accurate to a few 1e-7. The instruction tanh.approx has an error of
// 5e-4, which a softcap multiplies.
__device__ inline float tanh_of_log2(float y) {
  return 1.f - __fdividef(2.f, 1.f + exp2_approximate(y));
}

// Scores that a thread has of two rows; the row of accumulator i is i % 4 / 2. Four threads share a
// row.
class AttentionSoftmax {
 public:
  // Replaces the first block's scores by probabilities, relative to their maximum: p = 2^(scale *
  // (s - maximum)). Scores of masked keys are -infinity.
  template <unsigned count>
  __device__ void begin(float (&s)[count], float scale) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      maximum_[r] = row_maximum(s, r, -INFINITY);
      sum_[r] = exponentiate(s, r, scale);
    }
  }

  // The same for a further block. A row's maximum is kept while it grows by less than a factor of
  // 2^8, which both element types can represent: then sums need no rescaling. Returns whether a
  // row of this warp has a new maximum; then its earlier results must be multiplied by `shrink`.
  template <unsigned count>
  __device__ bool next(float (&s)[count], float scale, float (&shrink)[2]) {
    float highest[2];
    bool grows[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      highest[r] = row_maximum(s, r, maximum_[r]);
      grows[r] = (highest[r] - maximum_[r]) * scale > 8.f;  // false if both are -infinity
    }
    const bool any = __any_sync(~0u, grows[0] || grows[1]);
    if (any) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        shrink[r] = grows[r] ? exp2_approximate((maximum_[r] - highest[r]) * scale) : 1.f;
        if (grows[r]) maximum_[r] = highest[r];
        sum_[r] *= shrink[r];
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum_[r] += exponentiate(s, r, scale);
    return any;
  }

  // Adds up the sums of the four threads of each row. Call it once, after the last block.
  __device__ void finish() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum_[r] += __shfl_xor_sync(~0u, sum_[r], 1);
      sum_[r] += __shfl_xor_sync(~0u, sum_[r], 2);
    }
  }

  // After finish(), of the scores before scaling. A row without keys has the maximum -infinity and
  // the sum 0.
  __device__ float maximum(int r) const { return maximum_[r]; }
  __device__ float sum(int r) const { return sum_[r]; }

 private:
  template <unsigned count>
  __device__ static float row_maximum(const float (&s)[count], int r, float least) {
    float highest = least;
#pragma unroll
    for (unsigned i = 0; i < count; i += 4) {
      highest = fmaxf(highest, fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
    }
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
    return fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
  }

  // Returns the sum of this thread's probabilities.
  template <unsigned count>
  __device__ float exponentiate(float (&s)[count], int r, float scale) const {
    const float offset = maximum_[r] == -INFINITY ? 0.f : maximum_[r] * scale;
    float sum = 0.f;
#pragma unroll
    for (unsigned i = 0; i < count; i += 4) {
      float& left = s[i + 2 * r];
      float& right = s[i + 2 * r + 1];
      left = exp2_approximate(fmaf(left, scale, -offset));
      right = exp2_approximate(fmaf(right, scale, -offset));
      sum += left + right;
    }
    return sum;
  }

  float maximum_[2] = {}, sum_[2] = {};
};

// Probabilities as the A operand of a product with V, 16 keys per row of `p`. Keys beyond `count`
// accumulators have probability 0.
template <class Element, unsigned slices, unsigned count>
__device__ inline void pack_probabilities(std::uint32_t (&p)[slices][4], const float (&s)[count]) {
#pragma unroll
  for (unsigned i = 0; i < slices; ++i) {
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
      const unsigned at = 8 * i + 2 * j;
      p[i][j] = at < count ? kit::packed(s[at % count], s[at % count + 1], Element()) : 0;
    }
  }
}

template <unsigned count>
__device__ inline void scale_rows(float (&o)[count], const float (&by)[2]) {
#pragma unroll
  for (unsigned i = 0; i < count; ++i) o[i] *= by[i % 4 / 2];
}

}  // namespace ps::detail
