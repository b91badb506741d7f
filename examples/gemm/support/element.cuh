// Plain reads and writes of matrices of any size: zero beyond the edge.
#pragma once

#include <cstdint>

#include "gemm/support/problem.h"

namespace gemm {

__device__ inline float element(const __nv_bfloat16* matrix, unsigned row, unsigned column,
                                unsigned rows, unsigned columns) {
  if (row >= rows || column >= columns) return 0;
  return __bfloat162float(matrix[std::size_t{row} * columns + column]);
}

// Eight neighbours of a row, in one load where they are whole and aligned.
__device__ inline uint4 eight_raw(const __nv_bfloat16* matrix, unsigned row, unsigned column,
                                  unsigned rows, unsigned columns) {
  const __nv_bfloat16* from = matrix + std::size_t{row} * columns + column;
  if (row < rows && column + 8 <= columns && reinterpret_cast<std::uintptr_t>(from) % 16 == 0) {
    return *reinterpret_cast<const uint4*>(from);
  }
  __align__(16) __nv_bfloat16 one_by_one[8];
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) {
    const bool inside = row < rows && column + i < columns;
    one_by_one[i] = inside ? from[i] : __float2bfloat16(0);
  }
  return *reinterpret_cast<const uint4*>(one_by_one);
}

__device__ inline void eight_elements(float (&to)[8], const __nv_bfloat16* matrix, unsigned row,
                                      unsigned column, unsigned rows, unsigned columns) {
  const uint4 raw = eight_raw(matrix, row, column, rows, columns);
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&raw);
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const float2 two = __bfloat1622float2(pairs[i]);
    to[2 * i] = two.x;
    to[2 * i + 1] = two.y;
  }
}

__device__ inline void put_element(const Problem& p, unsigned row, unsigned column, float value) {
  if (row < p.m && column < p.n) p.c[std::size_t{row} * p.n + column] = __float2bfloat16(value);
}

// Two neighbours of a row, as accumulators hold them; in one store where that is aligned.
__device__ inline void put_pair(const Problem& p, unsigned row, unsigned column, float first,
                                float second) {
  if (row >= p.m || column >= p.n) return;
  __nv_bfloat16* to = p.c + std::size_t{row} * p.n + column;
  if (column + 1 < p.n && reinterpret_cast<std::uintptr_t>(to) % 4 == 0) {
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(first, second);
  } else {
    to[0] = __float2bfloat16(first);
    if (column + 1 < p.n) to[1] = __float2bfloat16(second);
  }
}

}  // namespace gemm
