// Kernels that cut the line of blocks of keys into equal parts, one per block of threads, and
// combine what several parts have of an item. The rungs differ in where the rows of a key lie.
#pragma once

#include <algorithm>

#include "decode/support/attend.cuh"
#include "decode/support/cuts.h"
#include "decode/support/launch.cuh"

namespace ladder::decode {

// The blocks of keys of the sequences before `end`. Called by whole warps.
__device__ inline unsigned blocks_before(const Problem& p, unsigned end) {
  unsigned sum = 0;
  for (unsigned b = kit::lane_index(); b < end; b += kit::warp_threads) {
    sum += blocks_of(p.lengths[b]);
  }
  return __reduce_add_sync(~0U, sum);
}

// The place of block `at` of the line, which exists. Called by whole warps: 32 sequences at a time.
__device__ inline Place place_of(const Problem& p, unsigned at) {
  for (unsigned first = 0;; first += kit::warp_threads) {
    const unsigned b = first + kit::lane_index();
    const unsigned own = b < p.sequences ? p.heads_k * blocks_of(p.lengths[b]) : 0;
    const unsigned all = __reduce_add_sync(~0U, own);
    if (at >= all) {
      at -= all;
      continue;
    }
    for (unsigned lane = 0;; ++lane) {
      const unsigned here = __shfl_sync(~0U, own, lane);
      if (at < here) return {first + lane, at};
      at -= here;
    }
  }
}

// Computes one part: whole items are stored as results, others for the combination.
template <class Rows>
__global__ void __launch_bounds__(threads, 2) compute_part(const __grid_constant__ Problem p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const unsigned part = blockIdx.x, total = p.heads_k * blocks_before(p, p.sequences);
  const unsigned parts = count_of_parts(total, gridDim.x);
  if (part >= parts) return;
  const unsigned begin = cut(total, parts, part), end = cut(total, parts, part + 1);
  Walk walk(p.lengths, p.heads_k, place_of(p, begin), end - begin);
  for (Run run; walk.next(run);) {
    attend<Rows>(shared, p, run, [&](unsigned row, unsigned column, float sum, const Stats& stats) {
      if (run.is_whole()) {
        const unsigned head_q = run.head * p.group() + row;
        store_result(p, run.sequence, head_q, column, sum, stats);
      } else {
        const unsigned slot = slot_of(part, run.is_first);
        store_partial(p, slot * tile_rows + row, column, sum, stats);
      }
    });
  }
}

// One block per query head and sequence: adds up what parts have of it, in the order of the keys.
static __global__ void __launch_bounds__(threads)
    combine_parts(const __grid_constant__ Problem p, unsigned most) {
  const unsigned head_q = blockIdx.x, sequence = blockIdx.y;
  const unsigned head = head_q / p.group(), row = head_q % p.group();
  const unsigned total = p.heads_k * blocks_before(p, p.sequences);
  const unsigned parts = count_of_parts(total, most);
  const unsigned blocks = blocks_of(p.lengths[sequence]);
  const unsigned begin = p.heads_k * blocks_before(p, sequence) + head * blocks;
  const unsigned first = part_of(total, parts, begin);
  const unsigned last = part_of(total, parts, begin + blocks - 1);
  if (first == last) return;  // one part computed it alone
  combine(p, sequence, head_q, last - first + 1,
          [&](unsigned i) { return std::size_t{slot_of(first + i, i == 0)} * tile_rows + row; });
}

// As many parts as blocks of threads fit on the GPU at once.
template <class Rows>
void run_equal_cuts(const Problem& p, const ps::Stream& stream) {
  kit::LaunchOptions options = launch_options();
  options.grid = std::min(kit::resident_clusters(compute_part<Rows>, options), most_parts);
  kit::launch(compute_part<Rows>, options, ps::cuda_stream(stream), p);
  kit::launch(combine_parts, {.grid = dim3(p.heads_q, p.sequences), .block = threads},
              ps::cuda_stream(stream), p, options.grid.x);
}

}  // namespace ladder::decode
