// The orders in which gate and up become the 256 columns of a tile of the up-projection, 128 of
// each: how tensor copies load them, and where a consumer's thread finds the gate and the up of a
// column of h. The columns of h are taken 16 at a time, of which a thread has eight values in two
// rows, from 64 sums d for 64 columns of h (accumulator_row(), accumulator_column()).
//
//   major              of B's tile
//   load(to, map, full, slot, column, k)   loads 256 columns of the tile, by 64 of K
//   gate(i, m)         the index in d of the gate of value m, 0 to 7, of columns 16 i to 16 i + 15
//   up_after           the up of a value is as many sums behind its gate
//   column(m)          which of the 16 columns value m is in
//   pack(values, to)   the eight values as PieceStore::put() takes them
#pragma once

#include <cstdint>

#include "penstock/kit/piece_store.cuh"
#include "penstock/kit/tile.h"
#include "penstock/kit/tma.cuh"
#include "penstock/kit/warp.cuh"

namespace ps::detail {

// In the order of the sums of a 64 x 16 product.
struct MoeColumnsInOrder {
  __device__ static unsigned column(unsigned m) {
    return m / 4 * 8 + kit::lane_index() % 4 * 2 + m % 2;
  }
  template <class Element>
  __device__ static void pack(const float (&values)[8], std::uint32_t (&to)[4]) {
    kit::pack_pairs<Element>(values, to);
  }
};

// K is contiguous: eight rows of gate and eight of up in turn, by one copy.
// Map: {slots, n / 8, 2, 8, d}, boxes of {1, 16, 2, 8, 64}.
struct MoeEights : MoeColumnsInOrder {
  static constexpr kit::Major major = kit::Major::k;
  static constexpr unsigned up_after = 4;

  __device__ static void load(unsigned char* to, const kit::TensorMap& map, kit::Barrier& full,
                              unsigned slot, unsigned column, unsigned k) {
    kit::tensor_load(to, map, full, kit::evict_normal(), slot, column / 16, 0, 0, k);
  }
  __device__ static constexpr unsigned gate(unsigned i, unsigned m) {
    return 16 * i + m / 4 * 8 + m % 4;
  }
};

inline constexpr unsigned moe_panel_bytes = 64 * 64 * 2;  // 64 columns by 64 of K

// Columns are contiguous, those of up behind those of gate: 64 of gate and 64 of up in turn.
// Map: {slots, 2, d, n}, boxes of {1, 2, 64, 64}, which end with the columns of gate.
struct MoePanels : MoeColumnsInOrder {
  static constexpr kit::Major major = kit::Major::mn;
  static constexpr unsigned up_after = 32;

  __device__ static void load(unsigned char* to, const kit::TensorMap& map, kit::Barrier& full,
                              unsigned slot, unsigned column, unsigned k) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      kit::tensor_load(to + 2 * i * moe_panel_bytes, map, full, kit::evict_normal(), slot, 0, k,
                       column / 2 + 64 * i);
    }
  }
  __device__ static constexpr unsigned gate(unsigned i, unsigned m) { return 8 * i + m; }
};

// Columns are contiguous, and the column of up follows that of gate: a thread has both, but only
// every fourth column of h. Map: {slots, d, 2 n}, boxes of {1, 64, 64}.
struct MoePairs {
  static constexpr kit::Major major = kit::Major::mn;
  static constexpr unsigned up_after = 1;

  __device__ static void load(unsigned char* to, const kit::TensorMap& map, kit::Barrier& full,
                              unsigned slot, unsigned column, unsigned k) {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      kit::tensor_load(to + i * moe_panel_bytes, map, full, kit::evict_normal(), slot, k,
                       column + 64 * i);
    }
  }
  __device__ static constexpr unsigned gate(unsigned i, unsigned m) { return 16 * i + 2 * m; }
  __device__ static unsigned column(unsigned m) { return m / 2 * 4 + kit::lane_index() % 4; }

  // Of each eight columns, lane j of four has columns j and j + 4 and needs 2 j and 2 j + 1. Both
  // rows of a column travel in one register. In each exchange the even lanes pass on one of their
  // columns and the odd lanes the other, so that two exchanges move everything.
  template <class Element>
  __device__ static void pack(const float (&values)[8], std::uint32_t (&to)[4]) {
    const unsigned lane = kit::lane_index(), j = lane % 4;
    const bool odd = j % 2 == 1, left = j < 2;
    const unsigned from = lane - j + j % 2 * 2 + j / 2;
#pragma unroll
    for (unsigned g = 0; g < 2; ++g) {
      const std::uint32_t near = kit::packed(values[4 * g], values[4 * g + 1], Element());
      const std::uint32_t far = kit::packed(values[4 * g + 2], values[4 * g + 3], Element());
      const std::uint32_t one = __shfl_sync(~0u, odd ? far : near, from);
      const std::uint32_t other = __shfl_sync(~0u, odd ? near : far, from ^ 1);
      // Lanes 0 and 1 received column 2 j first, lanes 2 and 3 column 2 j + 1.
      to[2 * g] = __byte_perm(one, other, left ? 0x5410 : 0x1054);
      to[2 * g + 1] = __byte_perm(one, other, left ? 0x7632 : 0x3276);
    }
  }
};

}  // namespace ps::detail
