// Softmax over one block of keys after the other, for rows that a warp holds in the layout of
// mma.sync: four neighbouring lanes share a row.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/attention/mask.h"
#include "penstock/kit/math.cuh"

namespace ps::detail::portable_attention {

// How products become scores, in units of log2.
struct Scores {
  float factor;        // of a product; above 0 if it is multiplied in the exponent
  float inner, outer;  // softcap: outer * tanh(inner * product)
  bool capped;
  bool scaled_first;  // products are multiplied by the factor before the maximum is taken
};

using kit::exp2_approximate;

// With a softcap, or a factor that is not above 0. The instruction tanh.approx has an error of
// 5e-4, which a softcap multiplies, so tanh is computed from its definition.
__device__ inline float score_of(float product, const Scores& scores) {
  if (!scores.capped) return scores.factor * product;
  const float power = exp2_approximate(2.F * 1.44269504F * scores.inner * product);
  return scores.outer * (1.F - __fdividef(2.F, 1.F + power));
}

// `rows` rows of a thread: 2 for every 16 rows of the warp. `columns` groups of 8 keys.
template <unsigned groups, unsigned columns>
class Softmax {
 public:
  float maximum[2 * groups], sum[2 * groups];  // in units of log2, after Scores; this lane's part

  __device__ Softmax() {
#pragma unroll
    for (unsigned r = 0; r < 2 * groups; ++r) {
      maximum[r] = -INFINITY;
      sum[r] = 0;
    }
  }

  // Replaces products by probabilities relative to the maximum so far. `factors` are those of what
  // was computed with the maximum before.
  __device__ void add(float (&s)[groups][columns][4], const Scores& scores,
                      float (&factors)[2 * groups]) {
    const float factor = scores.scaled_first ? 1.F : scores.factor;
#pragma unroll
    for (unsigned r = 0; r < 2 * groups; ++r) {
      float most = maximum[r];
#pragma unroll
      for (unsigned j = 0; j < columns; ++j) {
        most = fmaxf(most, fmaxf(s[r / 2][j][r % 2 * 2], s[r / 2][j][r % 2 * 2 + 1]));
      }
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      // Without a key so far, all scores are -infinity.
      const float from = most == -INFINITY ? 0.F : most * factor;
      factors[r] = exp2_approximate(maximum[r] * factor - from);
      maximum[r] = most;
      float added = 0;
#pragma unroll
      for (unsigned j = 0; j < columns; ++j) {
#pragma unroll
        for (unsigned e = 0; e < 2; ++e) {
          float& p = s[r / 2][j][r % 2 * 2 + e];
          p = exp2_approximate(fmaf(p, factor, -from));
          added += p;
        }
      }
      sum[r] = sum[r] * factors[r] + added;
    }
  }

  // Adds up the parts of the four lanes.
  __device__ void finish() {
#pragma unroll
    for (unsigned r = 0; r < 2 * groups; ++r) {
      sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
      sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    }
  }
};

template <unsigned groups, unsigned columns>
__device__ void score_first(float (&s)[groups][columns][4], const Scores& scores) {
#pragma unroll
  for (unsigned i = 0; i < groups * columns * 4; ++i) {
    float& each = s[i / (4 * columns)][i / 4 % columns][i % 4];
    each = score_of(each, scores);
  }
}

// Makes the scores of keys that a query does not attend to -infinity. `query` is the first of the
// lane's rows, the others are 8 and 16 behind; `key` the first of the lane's keys.
template <unsigned groups, unsigned columns>
__device__ void mask(float (&s)[groups][columns][4], std::int32_t query, std::int32_t key,
                     std::int32_t queries, std::int32_t keys, AttentionReach reach) {
#pragma unroll
  for (unsigned r = 0; r < 2 * groups; ++r) {
    const AttentionKeys own = attention_keys(query + static_cast<int>(8 * r), queries, keys, reach);
#pragma unroll
    for (unsigned j = 0; j < columns; ++j) {
#pragma unroll
      for (unsigned e = 0; e < 2; ++e) {
        const std::int32_t at = key + static_cast<int>(8 * j + e);
        if (at < own.begin || at >= own.end) s[r / 2][j][r % 2 * 2 + e] = -INFINITY;
      }
    }
  }
}

}  // namespace ps::detail::portable_attention
