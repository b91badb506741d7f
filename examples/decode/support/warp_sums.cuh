// The arithmetic of a warp: the query heads of a group are the 16 rows of mma.sync, and the warp
// has 16 keys of every block, with a softmax and sums of its own.
#pragma once

#include <cstdint>

#include "attention/support/accumulators.cuh"
#include "decode/support/rows.cuh"
#include "penstock/kit/matrix.cuh"
#include "penstock/kit/mma.cuh"
#include "penstock/kit/warp.cuh"

namespace ladder::decode {

// Shared memory in which the warps of a block add up what they have.
struct Meeting {
  Stats stats[warps][tile_rows];
  float sums[warps][tile_rows][dim + 8];  // rows begin in different banks
};

class WarpSums {
 public:
  // Loads the queries of the group that shares `head`. A group of fewer than 16 repeats its last
  // one, whose other results are not stored.
  __device__ WarpSums(const Problem& p, unsigned sequence, unsigned head)
      : scale_(p.scale * attention::log2_e) {
    const auto* const first = static_cast<const Element*>(p.q) +
                              (std::size_t{sequence} * p.heads_q + head * p.group()) * dim;
#pragma unroll
    for (unsigned i = 0; i < dim / 4; ++i) {
      const unsigned row = min(kit::lane_index() / 4 + i % 2 * 8, p.group() - 1);
      const unsigned column = i / 4 * 16 + i % 4 / 2 * 8 + kit::lane_index() % 4 * 2;
      queries_[i / 4][i % 4] = *reinterpret_cast<const std::uint32_t*>(first + row * dim + column);
    }
  }

  // Adds this warp's keys of a block, of which the first `left` exist.
  __device__ void add(const Stage& stage, unsigned left, bool is_first) {
    const unsigned own = kit::warp_index() * 16;
    float s[2][4] = {};
    multiply_keys(s, stage.k, own);
    attention::mask_beyond(attention::flat(s), left > own ? left - own : 0);
    attention::take_softmax(softmax_, attention::flat(s), attention::flat(o_), scale_, is_first);
    std::uint32_t probabilities[1][4];
    attention::pack_probabilities<Element>(probabilities, attention::flat(s));
    multiply_values(probabilities[0], stage.v, own);
  }

  // Writes what the warp has for the others.
  __device__ void hand_over(Meeting& meeting) {
    softmax_.finish();
    const unsigned lane = kit::lane_index(), warp = kit::warp_index();
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
      const unsigned row = lane / 4 + 8 * r;
      const float sum = softmax_.sum(r);  // 0 without keys
      meeting.stats[warp][row] = {sum > 0 ? softmax_.maximum(r) * scale_ : -INFINITY, sum};
#pragma unroll
      for (unsigned j = 0; j < dim / 8; ++j) {
        *reinterpret_cast<float2*>(&meeting.sums[warp][row][8 * j + lane % 4 * 2]) = {
            o_[j][2 * r], o_[j][2 * r + 1]};
      }
    }
  }

 private:
  // s = Q K^T of 16 keys from `own` on.
  __device__ void multiply_keys(float (&s)[2][4], const unsigned char* k, unsigned own) const {
    const unsigned lane = kit::lane_index();
#pragma unroll
    for (unsigned i = 0; i < dim / 16; ++i) {
      std::uint32_t b[4];
      kit::load_matrices(
          b, k + BlockTile::offset(own + lane / 16 * 8 + lane % 8, 16 * i + lane / 8 % 2 * 8));
      kit::mma<Element>(s[0], queries_[i], {b[0], b[1]});
      kit::mma<Element>(s[1], queries_[i], {b[2], b[3]});
    }
  }

  // o += P V
  __device__ void multiply_values(const std::uint32_t (&p)[4], const unsigned char* v,
                                  unsigned own) {
    const unsigned lane = kit::lane_index();
#pragma unroll
    for (unsigned j = 0; j < dim / 16; ++j) {
      std::uint32_t b[4];
      kit::load_matrices<true>(b, v + BlockTile::offset(own + lane % 16, 16 * j + lane / 16 * 8));
      kit::mma<Element>(o_[2 * j], p, {b[0], b[1]});
      kit::mma<Element>(o_[2 * j + 1], p, {b[2], b[3]});
    }
  }

  float scale_;
  std::uint32_t queries_[dim / 16][4];
  attention::Softmax softmax_;
  float o_[dim / 8][4] = {};
};

}  // namespace ladder::decode
