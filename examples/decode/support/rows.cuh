// Where the keys of a sequence lie, and how a block of them gets into shared memory.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "attention/support/rows.cuh"
#include "decode/support/cuts.h"
#include "decode/support/problem.h"
#include "penstock/kit/cp_async.cuh"

namespace ladder::decode {

namespace kit = ps::kit;

using Element = __nv_bfloat16;
using BlockTile = attention::RowTile<Element, block_keys>;  // of K or V

constexpr unsigned warps = block_keys / 16;  // each has 16 keys of every block
constexpr unsigned threads = warps * 32;
constexpr unsigned stages = 3;

// A block of keys and values.
struct Stage {
  alignas(1024) unsigned char k[BlockTile::bytes];
  alignas(1024) unsigned char v[BlockTile::bytes];
};

// The row of a key, in a cache without pages.
class ContiguousRows {
 public:
  __device__ ContiguousRows(const Problem& p, unsigned sequence) : first_(p.starts[sequence]) {}
  __device__ std::int64_t operator()(unsigned key) const { return first_ + key; }

 private:
  std::int64_t first_;
};

// Starts copying the keys and values from `first` on, of a sequence of `length` keys. What is
// behind the last key, and rows with a negative number, become zeros: nothing is read there.
template <class Rows>
__device__ void copy_async(Stage& stage, const Problem& p, const Rows& row_of, unsigned head,
                           unsigned first, unsigned length) {
  constexpr unsigned across = dim / 8, down = threads / across;
  static_assert(block_keys % down == 0 && down % 8 == 0, "turns of whole swizzle patterns");
  const unsigned row = threadIdx.x / across, column = threadIdx.x % across * 8;
  const unsigned to = BlockTile::offset(row, column);
#pragma unroll
  for (unsigned turn = 0; turn < block_keys / down; ++turn) {
    const unsigned key = first + row + turn * down;
    const std::int64_t found = key < length ? row_of(key) : -1;
    const std::size_t from =
        (static_cast<std::size_t>(found < 0 ? 0 : found) * p.heads_k + head) * dim + column;
    const unsigned at = to + BlockTile::row_offset(turn * down), bytes = found < 0 ? 0 : 16;
    kit::cp_async<16>(stage.k + at, static_cast<const Element*>(p.k) + from, bytes);
    kit::cp_async<16>(stage.v + at, static_cast<const Element*>(p.v) + from, bytes);
  }
}

}  // namespace ladder::decode
