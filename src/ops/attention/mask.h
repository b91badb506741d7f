// Which keys a query attends to, and which blocks of keys a tile of queries. Pure arithmetic that
// kernels and host tests share.
#pragma once

#include <cstdint>

#include "penstock/kit/config.h"

namespace ps::detail {

// Sequences are shorter than attention_most_rows, so that sums of positions and a reach fit 32
// bits.
inline constexpr std::int32_t attention_most_rows = 1 << 29;
inline constexpr std::int32_t attention_unlimited = 1 << 30;

// How many keys before and after its own position a query attends to, at least 0.
struct AttentionReach {
  std::int32_t left = attention_unlimited, right = attention_unlimited;

  PENSTOCK_HD constexpr bool unlimited() const {
    return left == attention_unlimited && right == attention_unlimited;
  }
};

// Keys [begin, end), none if end <= begin.
struct AttentionKeys {
  std::int32_t begin = 0, end = 0;
};

// The keys of a query of a sequence.
PENSTOCK_HD constexpr AttentionKeys attention_keys(std::int32_t query, std::int32_t queries,
                                                   std::int32_t keys, AttentionReach reach) {
  const std::int32_t position = query + (keys - queries);
  const std::int32_t first = position - reach.left, behind = position + reach.right + 1;
  return {first > 0 ? first : 0, behind < keys ? behind : keys};
}

// Blocks [begin, end) of a fixed number of keys hold all keys of a tile of queries. In blocks
// [whole_begin, whole_end), which lie inside, every query of the tile attends to every key. The
// others need a mask: [begin, whole_begin) and [whole_end, end).
struct AttentionBlocks {
  std::int32_t begin = 0, end = 0, whole_begin = 0, whole_end = 0;

  PENSTOCK_HD constexpr std::int32_t count() const { return end - begin; }
};

// The blocks of `block` keys for queries [first, last), which are not empty and all smaller than
// `queries`.
PENSTOCK_HD constexpr AttentionBlocks attention_blocks(std::int32_t first, std::int32_t last,
                                                       std::int32_t queries, std::int32_t keys,
                                                       AttentionReach reach, std::int32_t block) {
  const AttentionKeys upper = attention_keys(first, queries, keys, reach);
  const AttentionKeys lower = attention_keys(last - 1, queries, keys, reach);
  if (lower.end <= upper.begin) return {};
  AttentionBlocks blocks;
  blocks.begin = upper.begin / block;
  blocks.end = (lower.end + block - 1) / block;
  blocks.whole_begin = (lower.begin + block - 1) / block;
  blocks.whole_end = upper.end > 0 ? upper.end / block : 0;
  if (blocks.whole_begin >= blocks.whole_end) {
    blocks.whole_begin = blocks.whole_end = blocks.begin;
  }
  return blocks;
}

}  // namespace ps::detail
