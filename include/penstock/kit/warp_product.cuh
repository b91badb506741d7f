// A warp's part of a matrix product with mma.sync: fragments of A and B from tiles in shared
// memory, and sums in registers. Loading and multiplying are separate calls, so that the next
// fragments can be loaded while the current ones are multiplied. Needs compute capability 8.0.
//
//   using Product = WarpProduct<Element, TileA, TileB, 4, 16, 8>;  // 64 x 64 elements
//   Product product(row, column);
//   typename Product::Fragments fragments;
//   product.load(fragments, a, b, slice);
//   product.multiply(fragments);
#pragma once

#include <cstdint>

#include "penstock/kit/matrix.cuh"
#include "penstock/kit/mma.cuh"
#include "penstock/kit/tile.h"
#include "penstock/kit/warp.cuh"

namespace ps::kit {

// The warp has `row_count` groups of 16 rows, each `row_step` rows behind the one before, and
// `column_count` groups of 8 columns next to each other. TileA and TileB are SharedTiles of 2-byte
// elements; TileA is K-major.
template <class Element, class TileA, class TileB, unsigned row_count, unsigned row_step,
          unsigned column_count>
class WarpProduct {
 public:
  static constexpr unsigned slices = TileA::columns / 16;  // of K, one mma each

  struct Fragments {
    std::uint32_t a[row_count][4];
    std::uint32_t b[column_count / 2][4];
  };

  // mma.cuh says which elements of 16 x 8 a lane holds.
  float sums[row_count][column_count][4] = {};

  // The warp's first row and column in the tiles.
  __device__ WarpProduct(unsigned row, unsigned column) {
    const unsigned lane = lane_index();
#pragma unroll
    for (unsigned s = 0; s < slices; ++s) {
      a_[s] = TileA::offset(row + lane % 16, 16 * s + lane / 16 * 8);
      b_[s] = by_k ? TileB::offset(column + lane / 16 * 8 + lane % 8, 16 * s + lane / 8 % 2 * 8)
                   : TileB::offset(column + lane / 16 * 8, 16 * s + lane % 16);
    }
  }

  // Loads 16 columns of K from the tiles at `a` and `b`: all rows, or the first `rows` groups.
  template <unsigned rows = row_count>
  __device__ void load(Fragments& to, const unsigned char* a, const unsigned char* b,
                       unsigned slice) const {
#pragma unroll
    for (unsigned j = 0; j < column_count / 2; ++j) {
      // The swizzle moves whole groups of 8 rows, but XORs a chunk with its line.
      load_matrices<!by_k>(
          to.b[j], b + (by_k ? b_[slice] + TileB::row_offset(16 * j) : b_[slice] ^ (32 * j)));
    }
#pragma unroll
    for (unsigned i = 0; i < rows; ++i) {
      load_matrices(to.a[i], a + a_[slice] + TileA::row_offset(row_step * i));
    }
  }

  template <unsigned rows = row_count>
  __device__ void multiply(const Fragments& of) {
#pragma unroll
    for (unsigned i = 0; i < rows; ++i) {
#pragma unroll
      for (unsigned j = 0; j < column_count; ++j) {
        const std::uint32_t pair[2] = {of.b[j / 2][j % 2 * 2], of.b[j / 2][j % 2 * 2 + 1]};
        mma<Element>(sums[i][j], of.a[i], pair);
      }
    }
  }

 private:
  static constexpr bool by_k = TileB::major == Major::k;
  static_assert(TileA::major == Major::k, "A is K-major");
  static_assert(TileA::element_bytes == 2 && TileB::element_bytes == 2,
                "mma multiplies elements of 2 bytes");
  static_assert(TileA::panels == 1, "a row of A is one span");
  static_assert(row_step % 8 == 0 && column_count % 2 == 0, "whole groups of 8 rows, pairs of B");
  static_assert(by_k ? TileB::panels == 1 : column_count * 8 <= TileB::span_elements,
                "what a warp takes of B is in one panel");

  unsigned a_[slices], b_[slices];  // byte offsets of this lane's address in each slice
};

}  // namespace ps::kit
