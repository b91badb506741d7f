// The arithmetic of the portable kernels of f32, without tensor cores: scores are dot products of a
// lane's key with a query; results are sums that a lane has of every 32nd column.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/attention/portable_tiles.cuh"
#include "ops/attention/warp_reduce.cuh"
#include "ops/attention/work.h"

namespace ps::detail::attention_f32 {

// Configuration
constexpr unsigned warps = 4, threads = warps * kit::warp_threads;
constexpr unsigned warp_rows = 4, rows = warps * warp_rows;  // of q
constexpr unsigned keys = kit::warp_threads;                 // in a block of keys, one per lane
constexpr unsigned most_columns = 256;                       // of q, k and v
constexpr unsigned stride = most_columns + 4;      // lanes that read four columns of their own rows
                                                   // use different banks
constexpr unsigned columns = most_columns / keys;  // of a lane

// Shared storage
struct Tiles {
  alignas(16) float q[rows][stride];
  alignas(16) float k[keys][stride];
  alignas(16) float v[keys][most_columns];
};

// Rows of a tensor, counted from the first one of a sequence.
struct Source {
  const void* data;
  const AttentionPages& pages;
  const AttentionStrides& strides;
  std::uint32_t batch, head;
  std::int32_t origin, length;  // of the sequence, in the rows of its batch
};

// Copies rows [first, first + count) of a sequence, with zeros for rows that it does not have.
template <unsigned to_stride>
__device__ inline void load(float (*to)[to_stride], unsigned count, const Source& source,
                            std::int32_t first, unsigned width) {
  const auto* from = static_cast<const float*>(source.data);
  for (unsigned i = threadIdx.x; i < count * (width / 4); i += threads) {
    const unsigned row = i / (width / 4), column = i % (width / 4) * 4;
    const std::int32_t number = first + static_cast<std::int32_t>(row);
    float4 four{};
    if (number >= 0 && number < source.length) {
      const AttentionPlace at = source.pages(source.batch, std::int64_t{source.origin} + number);
      if (at.there) {
        four = *reinterpret_cast<const float4*>(
            from + source.strides.at(at.batch, at.row, source.head) + column);
      }
    }
    *reinterpret_cast<float4*>(&to[row][column]) = four;
  }
}

__device__ inline float dot(const float* a, const float* b, unsigned width) {
  float sum = 0;
  for (unsigned c = 0; c < width; c += 4) {
    const auto x = *reinterpret_cast<const float4*>(a + c);
    const auto y = *reinterpret_cast<const float4*>(b + c);
    sum = fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, fmaf(x.w, y.w, sum))));
  }
  return sum;
}

// How products become scores.
struct Scoring {
  float scale, softcap;  // softcap: 0 for none

  __device__ float operator()(float product) const {
    const float score = scale * product;
    return softcap > 0 ? softcap * tanhf(score / softcap) : score;
  }
};

// One row: its softmax and the sums of this lane's columns.
struct Row {
  float maximum = -INFINITY, sum = 0, sums[columns] = {};

  // Adds a block of keys; `score` is that of this lane's key, -infinity if the row does not attend
  // to it. Called by all lanes of a warp.
  __device__ void add(float score, const float (&v)[keys][most_columns]) {
    const float most = fmaxf(maximum, warp_max(score));
    // Without a key so far, all scores are -infinity.
    const float base = most == -INFINITY ? 0.F : most;
    const float factor = expf(maximum - base), p = expf(score - base);
    maximum = most;
    sum = sum * factor + warp_sum(p);
#pragma unroll
    for (unsigned c = 0; c < columns; ++c) sums[c] *= factor;
    for (unsigned j = 0; j < keys; ++j) {
      const float weight = __shfl_sync(~0U, p, j);
#pragma unroll
      for (unsigned c = 0; c < columns; ++c) {
        // Columns behind the last one hold anything, and their sums are not stored.
        sums[c] = fmaf(weight, v[j][kit::lane_index() + c * keys], sums[c]);
      }
    }
  }
};

}  // namespace ps::detail::attention_f32
