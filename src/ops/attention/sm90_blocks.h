// The blocks of keys that the sm90 kernels multiply with one tile of queries, and their order. Pure
// arithmetic that kernels and host tests share.
//
// Blocks end with the last key of the tile, so that the diagonal of a causal tile crosses as few
// blocks as possible. The first block then begins before key 0, unless the keys are whole blocks:
// it is moved to key 0, and the keys that it has in common with the next block are masked.
#pragma once

#include <cstdint>

#include "ops/attention/mask.h"
#include "penstock/kit/config.h"

namespace ps::detail {

// The tile's blocks are numbered 0 to count - 1 from left to right. Each has `size` keys. Blocks
// that need a mask are multiplied first: those at the right end from right to left, then those at
// the left end, then the others from right to left.
template <std::int32_t size>
struct AttentionTileBlocks {
  std::int32_t base = 0;  // the first key of block 0 before it is moved, at most 0 without a window
  std::int32_t count = 1;  // at least 1, even if no query of the tile has keys
  std::int32_t right = 1;  // blocks at the right end that need a mask, at least 1
  std::int32_t left = 0;   // other blocks, at the left end, that need a mask

  PENSTOCK_HD constexpr std::int32_t masked() const { return right + left; }

  // The number of the block that is multiplied at `step`.
  PENSTOCK_HD constexpr std::int32_t at(std::int32_t step) const {
    if (step < right) return count - 1 - step;
    if (step < right + left) return step - right;
    return count - 1 - step + left;
  }

  // The keys of a block, and behind them those that a mask removes because another block has them
  // or because they are beyond the sequence.
  PENSTOCK_HD constexpr std::int32_t first_key(std::int32_t block) const {
    const std::int32_t first = base + block * size;
    return first > 0 ? first : 0;
  }
  PENSTOCK_HD constexpr std::int32_t keys_end(std::int32_t block, std::int32_t keys) const {
    const std::int32_t end = base + (block + 1) * size;
    return end < keys ? end : keys;
  }
};

// The blocks for `rows` queries of which the first is at `position`, in a sequence of `keys` keys.
// With `beyond`, blocks of a causal tile may end up to that many keys behind the sequence, so that
// the diagonal crosses the last block from corner to corner.
template <std::int32_t size>
PENSTOCK_HD constexpr AttentionTileBlocks<size> attention_tile_blocks(std::int32_t position,
                                                                      std::int32_t rows,
                                                                      std::int32_t keys,
                                                                      AttentionReach reach,
                                                                      std::int32_t beyond) {
  const auto least = [](std::int32_t a, std::int32_t b) { return a < b ? a : b; };
  const auto most = [](std::int32_t a, std::int32_t b) { return a > b ? a : b; };
  const auto blocks_in = [](std::int32_t n) { return n > 0 ? (n + size - 1) / size : 0; };

  AttentionTileBlocks<size> blocks;
  const std::int32_t begin = most(0, position - reach.left);
  const std::int32_t end = least(position + rows + reach.right, keys + beyond);
  blocks.count = most(1, blocks_in(end - begin));
  blocks.base = end - blocks.count * size;
  // All queries attend to the keys from `whole_begin` on and before `whole_end`.
  const std::int32_t whole_end = least(position + reach.right + 1, keys);
  const std::int32_t whole_begin = most(0, position + rows - 1 - reach.left);
  blocks.right = least(blocks.count, most(1, blocks_in(end - whole_end)));
  blocks.left = least(blocks.count - blocks.right, blocks_in(whole_begin - blocks.base));
  return blocks;
}

// The scores of one head that tiles of 128 queries compute with blocks of `size` keys.
template <std::int32_t size>
constexpr std::int64_t attention_computed_scores(std::int32_t queries, std::int32_t keys,
                                                 AttentionReach reach) {
  std::int64_t scores = 0;
  for (std::int32_t first = 0; first < queries; first += 128) {
    const std::int32_t position = first + keys - queries;
    scores +=
        std::int64_t{128} * size * attention_tile_blocks<size>(position, 128, keys, reach, 0).count;
  }
  return scores;
}

// Whether blocks of 64 keys spare a twelfth of the scores of blocks of 80. Larger blocks have fewer
// steps, which is better for long sequences.
constexpr bool attention_small_blocks(std::int32_t queries, std::int32_t keys,
                                      AttentionReach reach) {
  constexpr std::int32_t longest = 1024;  // rows; beyond, there is little to spare
  if (queries > longest || keys > longest) return false;
  return 12 * attention_computed_scores<64>(queries, keys, reach) <=
         11 * attention_computed_scores<80>(queries, keys, reach);
}

}  // namespace ps::detail
