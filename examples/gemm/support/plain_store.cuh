// The way out of the rungs below the last: every thread writes its own pairs.
#pragma once

#include "gemm/support/element.cuh"
#include "penstock/kit/gemm/parts.cuh"
#include "penstock/kit/wgmma.cuh"

namespace gemm {

// `d` holds 64 rows of the product from (row, column) on.
template <unsigned count>
__device__ inline void store_plainly(const Problem& p, const float (&d)[count], unsigned row,
                                     unsigned column) {
  // A thread has pairs of two rows, eight apart. Columns are even: where the row's length is, too,
  // no pair is split.
  const unsigned first = row + ps::kit::accumulator_row(0);
  const unsigned at = column + ps::kit::accumulator_column(0);
  const bool pairs = p.n % 2 == 0 && reinterpret_cast<std::uintptr_t>(p.c) % 4 == 0;
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned r = first + 8 * half;
    if (r >= p.m) continue;
    __nv_bfloat16* const line = p.c + std::size_t{r} * p.n;
#pragma unroll
    for (unsigned i = 0; i < count / 4; ++i) {
      const unsigned c = at + 8 * i;
      const float left = d[4 * i + 2 * half], right = d[4 * i + 2 * half + 1];
      if (pairs && c < p.n) {
        *reinterpret_cast<__nv_bfloat162*>(line + c) = __floats2bfloat162_rn(left, right);
      } else {
        if (c < p.n) line[c] = __float2bfloat16(left);
        if (c + 1 < p.n) line[c + 1] = __float2bfloat16(right);
      }
    }
  }
}

// The same as an epilogue of the engine.
class PlainStore {
 public:
  struct Shared {};
  using Arguments = Problem;

  __device__ static void prefetch_arguments(const Problem&) {}

  __device__ PlainStore(Shared&, const Problem& p) : p_(p) {}
  template <unsigned count>
  __device__ void store(const float (&d)[count], const ps::kit::GemmTile& tile, unsigned row,
                        unsigned column) {
    store_plainly(p_, d, tile.row + row, tile.column + column);
  }
  __device__ void finish() {}

 private:
  const Problem& p_;
};

}  // namespace gemm
