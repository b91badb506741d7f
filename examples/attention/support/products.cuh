// The two products of the rungs with wgmma, for a warpgroup with 64 queries and blocks of 128 keys:
// scores from Q and K, both in shared memory, and sums from P, in registers, and V.
#pragma once

#include "attention/support/accumulators.cuh"
#include "attention/support/maps.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/wgmma.cuh"

namespace ladder::attention {

constexpr unsigned group_queries = 64;  // of a warpgroup
constexpr unsigned block_keys = 128;

// V is read as it lies in memory, a row per key, which to the product is V transposed.
template <class Element>
using TileQ = RowTile<Element, group_queries>;
template <class Element>
using TileK = RowTile<Element, block_keys>;
template <class Element>
using TileV = kit::SharedTile<Element, dim, block_keys, kit::Major::mn>;

using Scores = float[block_keys / 2];
using Sums = float[dim / 2];
using Probabilities = std::uint32_t[block_keys / 16][4];

// Starts s = Q K^T, of the first 2 * count keys, as a group of its own.
template <class Element, unsigned count>
__device__ __forceinline__ void start_scores(float (&s)[count], const unsigned char* q,
                                             const unsigned char* k) {
  const auto a = kit::Operand<TileQ<Element>>::at(kit::shared_address(q));
  const auto b = kit::Operand<TileK<Element>>::at(kit::shared_address(k));
  kit::wgmma_fence();
#pragma unroll
  for (unsigned i = 0; i < TileQ<Element>::slices; ++i) {
    kit::multiply(s, a.slice(i), b.slice(i), i > 0);
  }
  kit::wgmma_commit();
}

// Starts o += P V, of the first 16 * slices keys.
template <class Element, unsigned slices = block_keys / 16>
__device__ __forceinline__ void start_values(Sums& o, const Probabilities& p,
                                             const unsigned char* v) {
  const auto b = kit::Operand<TileV<Element>>::at(kit::shared_address(v));
  kit::wgmma_fence();
#pragma unroll
  for (unsigned i = 0; i < slices; ++i) kit::multiply<Element>(o, p[i], b.slice(i), true);
  kit::wgmma_commit();
}

// The first row of the 16 that this warp has of its warpgroup's 64.
__device__ inline unsigned warp_row() { return kit::warp_index() % 4 * 16; }

}  // namespace ladder::attention
