// What happens to a tile of products: here, rounding to the element type and a store through a
// tensor map, which leaves out what is beyond the matrix.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "penstock/kit/fence.cuh"
#include "penstock/kit/gemm/config.cuh"
#include "penstock/kit/matrix.cuh"
#include "penstock/kit/tma.cuh"

namespace ps::kit {

__device__ inline std::uint32_t packed(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
__device__ inline std::uint32_t packed(float low, float high, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}

// A consumer warpgroup's way out: 64 columns at a time, through two pieces of shared memory, so
// that one is written while the other is stored.
template <class Config>
class GemmStore {
 public:
  using Arguments = TensorMap;

  __device__ GemmStore(GemmShared<Config>& shared, const TensorMap& c, unsigned number)
      : pieces_(shared.c[number]), c_(c), number_(number) {}

  // The 64 rows from `row` on, columns from `column` on.
  __device__ void store(const float (&d)[Config::tile_n / 2], unsigned row, unsigned column) {
#pragma unroll
    for (unsigned p = 0; p < Config::tile_n / 64; ++p) {
      // The piece's last store, two ago, must have been read.
      if (is_storer()) bulk_wait_read<1>();
      sync();
      write(reinterpret_cast<const float (&)[32]>(d[32 * p]), pieces_[p % 2]);
      fence_shared_to_async();
      sync();
      if (is_storer()) {
        tensor_store(c_, pieces_[p % 2], evict_normal(), row, column + 64 * p);
        bulk_commit();
      }
    }
  }

  // Before the block ends, and its shared memory with it.
  __device__ void finish() {
    if (is_storer()) bulk_wait_read<0>();
  }

 private:
  using Piece = typename Config::PieceC;

  // Lane l names row l % 16 of 16 columns' left (lanes below 16) or right half.
  __device__ static void write(const float (&d)[32], unsigned char* piece) {
    const unsigned lane = lane_index();
    const unsigned row = threadIdx.x / warp_threads % 4 * 16 + lane % 16;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const std::uint32_t pairs[4] = {packed(d[8 * i + 0], d[8 * i + 1], Element()),
                                      packed(d[8 * i + 2], d[8 * i + 3], Element()),
                                      packed(d[8 * i + 4], d[8 * i + 5], Element()),
                                      packed(d[8 * i + 6], d[8 * i + 7], Element())};
      store_matrices(piece + Piece::offset(row, 16 * i + lane / 16 * 8), pairs);
    }
  }

  // The same thread each time: bulk groups belong to the thread that made them.
  __device__ static bool is_storer() { return threadIdx.x % warpgroup_threads == 0; }
  __device__ void sync() const { named_barrier_wait(1 + number_, warpgroup_threads); }

  using Element = typename Config::Element;
  unsigned char (&pieces_)[2][Piece::bytes];
  const TensorMap& c_;
  unsigned number_;
};

}  // namespace ps::kit
