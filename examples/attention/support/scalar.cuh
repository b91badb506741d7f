// The arithmetic of the rungs without tensor cores: a block of 256 threads has 64 queries of one
// head, and processes one block of 64 keys and values after the other, from shared memory. The
// rungs differ in how keys and values get there.
//
// A thread computes 4 queries: 4 scores of each in every block of keys, and 8 columns of each
// result. The 16 threads that share a query are half a warp.
#pragma once

#include <cmath>

#include "attention/support/rows.cuh"

namespace ladder::attention {

template <class Element>
class ScalarTile {
 public:
  static constexpr unsigned threads = 256;
  static constexpr unsigned queries = 64, keys = 64;
  using Tile = RowTile<Element, 64>;  // of Q, K or V

  struct Shared {
    alignas(1024) unsigned char q[Tile::bytes];
    alignas(16) float p[queries][keys + 16];  // the two halves of a warp are in different banks
  };

  // The queries are in `shared.q` when add() is called.
  __device__ ScalarTile(Shared& shared, const Problem& p)
      : shared_(shared), problem_(p), own_(threadIdx.x / 16), lane_(threadIdx.x % 16) {
#pragma unroll
    for (float& each : maximum_) each = -INFINITY;
  }

  // Adds the keys and values from `first` on.
  __device__ void add(const unsigned char* k, const unsigned char* v, unsigned first) {
    float s[4][4] = {};
    multiply_keys(s, k);
    take_softmax(s, first);
    __syncwarp();  // probabilities of a query are written and read by the same warp
    multiply_values(v);
    __syncwarp();  // the next ones are written to the same place
  }

  // Writes the results of the queries from `first` on.
  __device__ void store(unsigned head, unsigned first) const {
#pragma unroll
    for (unsigned r = 0; r < 4; ++r) {
      const unsigned row = first + own_ + 16 * r;
      if (row >= problem_.rows) continue;
      uint4 packed;
      std::uint32_t* const pairs = &packed.x;
      const float share = 1 / sum_[r];
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        pairs[i] = kit::packed(o_[r][2 * i] * share, o_[r][2 * i + 1] * share, Element());
      }
      Element* const line = row_at<Element>(problem_.out, problem_, head, row);
      *reinterpret_cast<uint4*>(line + 8 * lane_) = packed;
    }
  }

 private:
  // s = Q K^T, eight columns at a time: 128 multiply-adds for 8 reads of 16 bytes.
  __device__ void multiply_keys(float (&s)[4][4], const unsigned char* k) const {
#pragma unroll 2
    for (unsigned column = 0; column < dim; column += 8) {
      const unsigned char* const q_at = shared_.q + Tile::offset(own_, column);
      const unsigned char* const k_at = k + Tile::offset(lane_, column);
      float q[4][8];
#pragma unroll
      for (unsigned r = 0; r < 4; ++r) unpack(q[r], q_at + Tile::row_offset(16 * r), Element());
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) {
        float key[8];
        unpack(key, k_at + Tile::row_offset(16 * j), Element());
#pragma unroll
        for (unsigned r = 0; r < 4; ++r) {
#pragma unroll
          for (unsigned i = 0; i < 8; ++i) s[r][j] = fmaf(q[r][i], key[i], s[r][j]);
        }
      }
    }
  }

  // The softmax of all keys would need all scores. Instead, probabilities are relative to the
  // largest score so far; when a larger one comes, what was summed before shrinks.
  __device__ void take_softmax(float (&s)[4][4], unsigned first) {
    const float scale = problem_.scale * log2_e;
#pragma unroll
    for (unsigned r = 0; r < 4; ++r) {
      float most = maximum_[r];
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) {
        const bool is_key = first + lane_ + 16 * j < problem_.rows;
        s[r][j] = is_key ? s[r][j] * scale : -INFINITY;
        most = fmaxf(most, s[r][j]);
      }
#pragma unroll
      for (unsigned other = 1; other < 16; other *= 2) {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, other));
      }
      const float shrink = exp2f(maximum_[r] - most);
      maximum_[r] = most;
      float sum = 0;
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) {
        const float probability = exp2f(s[r][j] - most);
        shared_.p[own_ + 16 * r][lane_ + 16 * j] = probability;
        sum += probability;
      }
#pragma unroll
      for (unsigned other = 1; other < 16; other *= 2) {
        sum += __shfl_xor_sync(~0u, sum, other);
      }
      sum_[r] = sum_[r] * shrink + sum;
#pragma unroll
      for (float& each : o_[r]) each *= shrink;
    }
  }

  // o += P V, four keys at a time.
  __device__ void multiply_values(const unsigned char* v) {
#pragma unroll 2
    for (unsigned key = 0; key < keys; key += 4) {
      float4 p[4];
#pragma unroll
      for (unsigned r = 0; r < 4; ++r) {
        p[r] = *reinterpret_cast<const float4*>(&shared_.p[own_ + 16 * r][key]);
      }
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        float value[8];
        unpack(value, v + Tile::offset(key + i, 8 * lane_), Element());
#pragma unroll
        for (unsigned r = 0; r < 4; ++r) {
          const float probability = (&p[r].x)[i];
#pragma unroll
          for (unsigned c = 0; c < 8; ++c) o_[r][c] = fmaf(probability, value[c], o_[r][c]);
        }
      }
    }
  }

  Shared& shared_;
  const Problem& problem_;
  unsigned own_, lane_;  // the first of its queries, and of its keys and columns
  float maximum_[4], sum_[4] = {};
  float o_[4][8] = {};
};

}  // namespace ladder::attention
