// Rows of Q, K, V and the result in global memory, and tiles of them in shared memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "attention/support/problem.h"
#include "penstock/kit/cp_async.cuh"
#include "penstock/kit/packed.cuh"
#include "penstock/kit/tile.h"

namespace ladder::attention {

namespace kit = ps::kit;

// softmax() is computed with powers of 2: e^x = 2^(x * log2_e).
constexpr float log2_e = 1.4426950408889634f;

// Rows of 256 bytes as two panels of 128, swizzled: threads that read different rows, or different
// columns of one row, find them in different banks.
template <class Element, unsigned rows>
using RowTile = kit::SharedTile<Element, rows, dim>;

template <class Element>
__device__ Element* row_at(void* matrix, const Problem& p, unsigned head, unsigned row) {
  return static_cast<Element*>(matrix) + (std::size_t{head} * p.rows + row) * dim;
}
template <class Element>
__device__ const Element* row_at(const void* matrix, const Problem& p, unsigned head,
                                 unsigned row) {
  return static_cast<const Element*>(matrix) + (std::size_t{head} * p.rows + row) * dim;
}

// Divides a tile, the rows of a head from `first` on, into pieces of 16 bytes among `threads`
// threads, and calls copy(to, from, inside) for each piece of this thread. `inside` is false for
// rows beyond the last; `from` is then another address that may be read.
template <class Element, unsigned rows, unsigned threads, class Copy>
__device__ void for_each_piece(unsigned char* tile, const void* matrix, const Problem& p,
                               unsigned head, unsigned first, const Copy& copy) {
  using Tile = RowTile<Element, rows>;
  constexpr unsigned across = dim / 8, down = threads / across;
  static_assert(rows % down == 0 && down % 8 == 0, "turns of whole swizzle patterns");
  const unsigned row = threadIdx.x / across, column = threadIdx.x % across * 8;
  unsigned char* const to = tile + Tile::offset(row, column);
#pragma unroll
  for (unsigned turn = 0; turn < rows / down; ++turn) {
    const unsigned at = first + row + turn * down;
    copy(to + Tile::row_offset(turn * down),
         row_at<Element>(matrix, p, head, min(at, p.rows - 1)) + column, at < p.rows);
  }
}

// Starts copying rows with cp.async. Rows beyond the last become zeros.
template <class Element, unsigned rows, unsigned threads>
__device__ void copy_async(unsigned char* tile, const void* matrix, const Problem& p, unsigned head,
                           unsigned first) {
  for_each_piece<Element, rows, threads>(tile, matrix, p, head, first,
                                         [](unsigned char* to, const Element* from, bool inside) {
                                           kit::cp_async<16>(to, from, inside ? 16 : 0);
                                         });
}

// Eight elements, 16 bytes, as floats.
__device__ inline void unpack(float (&to)[8], const unsigned char* from, __nv_bfloat16) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const std::uint32_t pairs[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    // A bf16 is the upper half of a float.
    to[2 * i] = __uint_as_float(pairs[i] << 16);
    to[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
  }
}
__device__ inline void unpack(float (&to)[8], const unsigned char* from, __half) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const auto* const pairs = reinterpret_cast<const __half2*>(&raw);
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const float2 two = __half22float2(pairs[i]);
    to[2 * i] = two.x;
    to[2 * i + 1] = two.y;
  }
}

}  // namespace ladder::attention
