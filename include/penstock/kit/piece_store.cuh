// Stores wgmma accumulators: a warp packs 16 rows x 64 columns of them into a buffer in shared
// memory with stmatrix and starts a tensor store, which overlaps packing the next ones. Needs
// compute capability 9.0.
#pragma once

#include <cstdint>

#include "penstock/kit/fence.cuh"
#include "penstock/kit/matrix.cuh"
#include "penstock/kit/packed.cuh"
#include "penstock/kit/tile.h"
#include "penstock/kit/tma.cuh"
#include "penstock/kit/warp.cuh"

namespace ps::kit {

// The buffers of one warpgroup, `count` pieces of 64 x 64 elements. Every warp stores its own 16
// rows and waits for no other warp. Buffers are used in turn; up to count - 1 stores are in flight
// while one is filled.
template <class Element, unsigned count>
class PieceStore {
 public:
  using Piece = SharedTile<Element, 64, 64>;
  static constexpr unsigned rows = 16;  // of the box that a warp stores
  static constexpr unsigned columns = 64;

  struct Shared {
    alignas(1024) unsigned char pieces[count][Piece::bytes];
  };

  __device__ explicit PieceStore(Shared& shared)
      : shared_(shared), first_row_(warp_index() % 4 * rows) {}

  // The warp's first row in the warpgroup's 64.
  __device__ unsigned first_row() const { return first_row_; }

  // Writes 16 columns at a time: pairs(i, to) sets the four registers of columns 16 i to 16 i + 15,
  // packed as accumulators d[8 i] to d[8 i + 7] of a 64 x 64 product. Then calls store(piece) in
  // one thread, which copies the warp's rows to where they belong with tensor_store(). All threads
  // of the warp call this.
  template <class Pairs, class Store>
  __device__ void put(const Pairs& pairs, const Store& store) {
    if (elect()) bulk_wait_read<count - 1>();  // the last store from this buffer has read it
    __syncwarp();
    unsigned char* const piece = shared_.pieces[next_];
    next_ = next_ + 1 == count ? 0 : next_ + 1;
    // Lane l addresses row l % 16, in the left half (lanes below 16) or right half of 16 columns.
    const unsigned lane = lane_index();
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      std::uint32_t values[4];
      pairs(i, values);
      store_matrices(piece + Piece::offset(first_row_ + lane % 16, 16 * i + lane / 16 * 8), values);
    }
    fence_shared_to_async();
    __syncwarp();
    if (elect()) {
      store(piece + Piece::row_offset(first_row_));
      bulk_commit();
    }
  }

  // Call before the block exits: waits until the stores have read shared memory.
  __device__ void finish() {
    if (elect()) bulk_wait_read<0>();
  }

 private:
  Shared& shared_;
  unsigned first_row_;
  unsigned next_ = 0;
};

// Accumulators of 16 columns, packed without change: for PieceStore::put().
template <class Element>
__device__ inline void pack_pairs(const float* d, std::uint32_t (&to)[4]) {
#pragma unroll
  for (unsigned j = 0; j < 4; ++j) to[j] = packed(d[2 * j], d[2 * j + 1], Element());
}

// Stores the first `valid` rows, 1 to 16, of a 16-row box and leaves the others out, although a
// tensor store writes whole boxes. Groups of rows that follow each other in memory can so be stored
// in any order. The map (ragged_options() in kit/tensor_map.h) has three dimensions, {rows + 16,
// 16, columns} with the same stride for the first two, and begins 16 rows before the matrix: of the
// box at (row + valid, 16 - valid) only the first `valid` rows lie inside the second dimension.
__device__ inline void ragged_store(const TensorMap& map, const void* piece, CacheHint hint,
                                    unsigned row, unsigned valid, unsigned column) {
  tensor_store(map, piece, hint, row + valid, 16 - valid, column);
}

}  // namespace ps::kit
