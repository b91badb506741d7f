// What a block of threads does with a run of blocks of keys: cp.async loads the next ones while its
// warps multiply this one, and at the end the warps add up what they have.
#pragma once

#include <cmath>

#include "decode/support/warp_sums.cuh"

namespace ladder::decode {

struct Shared {
  Stage stages[decode::stages];
};
static_assert(sizeof(Meeting) <= sizeof(Shared), "the warps meet where the stages were");

// Adds up `count` partial results in the order of their numbers. stats_of(i) and sum_of(i) read one
// of them. Returns the sum, and its Stats in `all`.
template <class StatsOf, class SumOf>
__device__ float combined(unsigned count, const StatsOf& stats_of, const SumOf& sum_of,
                          Stats& all) {
  float maximum = -INFINITY;
  for (unsigned i = 0; i < count; ++i) maximum = fmaxf(maximum, stats_of(i).maximum);
  const float base = maximum == -INFINITY ? 0.F : maximum;  // there was no key
  float total = 0, sum = 0;
  for (unsigned i = 0; i < count; ++i) {
    const float weight = exp2f(stats_of(i).maximum - base);
    total += weight * stats_of(i).sum;
    sum += weight * sum_of(i);
  }
  all = {maximum, total};
  return sum;
}

// Computes a run and calls store(row, column, sum, stats) for every row of the group. Thread i has
// column i. Called by all threads of the block.
template <class Rows, class Store>
__device__ void attend(Shared& shared, const Problem& p, const Run& run, const Store& store) {
  const auto length = static_cast<unsigned>(p.lengths[run.sequence]);
  const Rows row_of(p, run.sequence);
  const auto ask_block = [&](unsigned block) {
    if (block < run.end) {
      copy_async(shared.stages[block % stages], p, row_of, run.head, block * block_keys, length);
    }
    kit::cp_async_commit();  // a group per block, there or not: counting groups counts blocks
  };
  for (unsigned i = 0; i + 1 < stages; ++i) ask_block(run.begin + i);
  WarpSums sums(p, run.sequence, run.head);
  for (unsigned block = run.begin; block < run.end; ++block) {
    kit::cp_async_wait<stages - 2>();  // this thread's copies have landed,
    __syncthreads();                   // all others' too, and nobody reads the last block
    ask_block(block + stages - 1);     // into the stage of the last block
    const unsigned first = block * block_keys;
    sums.add(shared.stages[block % stages], length > first ? length - first : 0,
             block == run.begin);
  }
  kit::cp_async_wait<0>();
  __syncthreads();  // nobody reads the stages
  auto& meeting = reinterpret_cast<Meeting&>(shared);
  sums.hand_over(meeting);
  __syncthreads();
  const unsigned column = threadIdx.x;
  for (unsigned row = 0; row < p.group(); ++row) {
    Stats all;
    const float sum = combined(
        warps, [&](unsigned warp) { return meeting.stats[warp][row]; },
        [&](unsigned warp) { return meeting.sums[warp][row][column]; }, all);
    store(row, column, sum, all);
  }
  __syncthreads();  // the next run overwrites the meeting
}
static_assert(threads == dim, "a thread per column");

// Writes an element of the result.
__device__ inline void store_result(const Problem& p, unsigned sequence, unsigned head_q,
                                    unsigned column, float sum, const Stats& stats) {
  const float share = stats.sum > 0 ? sum / stats.sum : 0.F;
  static_cast<Element*>(p.out)[(std::size_t{sequence} * p.heads_q + head_q) * dim + column] =
      __float2bfloat16(share);
}

// Writes a column of partial result `number`.
__device__ inline void store_partial(const Problem& p, std::size_t number, unsigned column,
                                     float sum, const Stats& stats) {
  p.partials.sums[number * dim + column] = sum;
  if (column == 0) p.partials.stats[number] = stats;
}

// Combines partial results number(0) ... number(count - 1) into a row of the result, in this order.
// A thread has the column of its number.
template <class Number>
__device__ void combine(const Problem& p, unsigned sequence, unsigned head_q, unsigned count,
                        const Number& number) {
  const unsigned column = threadIdx.x;
  Stats all;
  const float sum = combined(
      count, [&](unsigned i) { return p.partials.stats[number(i)]; },
      [&](unsigned i) { return p.partials.sums[number(i) * dim + column]; }, all);
  store_result(p, sequence, head_q, column, sum, all);
}

}  // namespace ladder::decode
