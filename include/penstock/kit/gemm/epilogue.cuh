// The epilogue of a matrix product: rounds to the element type and stores through a tensor map,
// which leaves out elements outside the matrix.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "penstock/kit/fence.cuh"
#include "penstock/kit/gemm/config.cuh"
#include "penstock/kit/matrix.cuh"
#include "penstock/kit/tma.cuh"

namespace ps::kit {

// Two floats rounded to the element type, in one register.
__device__ inline std::uint32_t packed(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
__device__ inline std::uint32_t packed(float low, float high, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}

// Stores a consumer's tile, 64 columns at a time through two buffers in shared memory: one is
// written while the other is stored. Every warp stores its own 16 rows and waits for no other warp.
template <class Config>
class GemmStore {
 public:
  using Arguments = TensorMap;  // of C, with boxes of `box_rows` x 64
  static constexpr unsigned box_rows = 16;

  __device__ static void prefetch_arguments(const Arguments& c) { prefetch(c); }

  __device__ GemmStore(GemmShared<Config>& shared, const Arguments& c, unsigned number)
      : pieces_(shared.c[number]), c_(c), first_row_(warp_index() % 4 * box_rows) {}

  // Stores 64 rows from `row` on, and tile_n columns from `column` on.
  __device__ void store(const float (&d)[Config::tile_n / 2], unsigned row, unsigned column) {
    constexpr unsigned count = Config::tile_n / 64;
#pragma unroll
    for (unsigned p = 0; p < count; ++p) {
      // The last store from this buffer must have read it: that is the store before last, or the
      // last store if the number of pieces is odd and a new tile begins.
      if (elect()) {
        if (count % 2 == 1 && p == 0) {
          bulk_wait_read<0>();
        } else {
          bulk_wait_read<1>();
        }
      }
      __syncwarp();
      write(reinterpret_cast<const float (&)[32]>(d[32 * p]), pieces_[p % 2]);
      fence_shared_to_async();
      __syncwarp();
      if (elect()) {
        tensor_store(c_, pieces_[p % 2] + Piece::row_offset(first_row_), evict_first(),
                     row + first_row_, column + 64 * p);
        bulk_commit();
      }
    }
  }

  // Call before the block exits: waits until the stores have read shared memory.
  __device__ void finish() {
    if (elect()) bulk_wait_read<0>();
  }

 private:
  using Piece = typename Config::PieceC;
  using Element = typename Config::Element;

  // Lane l addresses row l % 16, in the left half (lanes below 16) or right half of 16 columns.
  __device__ void write(const float (&d)[32], unsigned char* piece) const {
    const unsigned lane = lane_index();
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const std::uint32_t pairs[4] = {packed(d[8 * i + 0], d[8 * i + 1], Element()),
                                      packed(d[8 * i + 2], d[8 * i + 3], Element()),
                                      packed(d[8 * i + 4], d[8 * i + 5], Element()),
                                      packed(d[8 * i + 6], d[8 * i + 7], Element())};
      store_matrices(piece + Piece::offset(first_row_ + lane % 16, 16 * i + lane / 16 * 8), pairs);
    }
  }

  unsigned char (&pieces_)[2][Piece::bytes];
  const TensorMap& c_;
  unsigned first_row_;  // of this warp, in the consumer's 64 rows
};

}  // namespace ps::kit
