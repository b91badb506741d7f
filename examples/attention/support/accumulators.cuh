// What the rungs with tensor cores share. A thread's accumulators are those of wgmma, and of
// mma.sync 16 x 8 by 16 x 8: of every 8 columns two neighbours in a row and two in the row 8 below.
#pragma once

#include "attention/support/rows.cuh"
#include "ops/attention/sm90_softmax.cuh"
#include "penstock/kit/warp.cuh"

namespace ladder::attention {

using ps::detail::pack_probabilities;
using ps::detail::scale_rows;
using Softmax = ps::detail::AttentionSoftmax;

// The accumulators of 16 rows as one array.
template <unsigned columns>
__device__ float (&flat(float (&sums)[columns][4]))[4 * columns] {
  return reinterpret_cast<float (&)[4 * columns]>(sums);
}

// Sets the scores of keys beyond the last row to -infinity; the first `left` keys of the tile
// exist.
template <unsigned count>
__device__ void mask_beyond(float (&s)[count], unsigned left) {
  const unsigned own = kit::lane_index() % 4 * 2;
#pragma unroll
  for (unsigned i = 0; i < count; ++i) {
    if (i / 4 * 8 + i % 2 + own >= left) s[i] = -INFINITY;
  }
}

// Turns the scores of a block into probabilities, and rescales the sums if a maximum grew.
template <unsigned count>
__device__ void take_softmax(Softmax& softmax, float (&s)[count], float (&o)[dim / 2], float scale,
                             bool first) {
  float shrink[2];
  if (first) {
    softmax.begin(s, scale);
  } else if (softmax.next(s, scale, shrink)) {
    scale_rows(o, shrink);
  }
}

// Divides by the sums of the probabilities, which finish() adds up first.
__device__ inline void divide(float (&o)[dim / 2], Softmax& softmax) {
  softmax.finish();
  const float inverse[2] = {1 / softmax.sum(0), 1 / softmax.sum(1)};
  scale_rows(o, inverse);
}

// Every thread writes its own pairs. `first`: the row of the first of 16 that the warp has.
template <class Element>
__device__ void store_rows(const Problem& p, const float (&o)[dim / 2], unsigned head,
                           unsigned first) {
#pragma unroll
  for (unsigned r = 0; r < 2; ++r) {
    const unsigned row = first + kit::lane_index() / 4 + 8 * r;
    if (row >= p.rows) continue;
    Element* const line = row_at<Element>(p.out, p, head, row) + kit::lane_index() % 4 * 2;
#pragma unroll
    for (unsigned i = 2 * r; i < dim / 2; i += 4) {
      *reinterpret_cast<std::uint32_t*>(line + i / 4 * 8) = kit::packed(o[i], o[i + 1], Element());
    }
  }
}

}  // namespace ladder::attention
