// The blocks of keys of the sm90 attention kernels, against the definition of the mask.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/attention/mask.h"
#include "ops/attention/sm90_blocks.h"
#include "ops/attention/work.h"
#include "support/sanitized.h"

namespace ps::test {
namespace {

using detail::attention_keys;
using detail::attention_tile_blocks;
using detail::attention_unlimited;
using detail::AttentionKeys;
using detail::AttentionReach;
using detail::AttentionTileBlocks;

constexpr std::int32_t lengths[] = {1, 63, 64, 65, 127, 128, 129, 161, 257, 400};
constexpr std::int32_t limits[] = {0, 1, 64, 129, attention_unlimited};

// Whether the steps of a tile multiply every query with each of its keys exactly once. Keys of a
// step that needs no mask count without asking the mask. With `halves`, the first 64 queries take
// only the left half of the first step's block.
template <std::int32_t size>
bool covers(std::int32_t first, std::int32_t rows, std::int32_t queries, std::int32_t keys,
            AttentionReach reach, bool halves, bool aligned) {
  const std::int32_t position = first + keys - queries;
  const AttentionTileBlocks<size> blocks =
      attention_tile_blocks<size>(position, rows, keys, reach, halves ? size / 2 : 0, aligned);
  if (blocks.count < 1 || blocks.right < 1 || blocks.masked() > blocks.count) return false;
  const std::int32_t valid = std::min(rows, queries - first);
  for (std::int32_t r = 0; r < valid; ++r) {
    std::vector<int> times(static_cast<std::size_t>(keys), 0);
    for (std::int32_t step = 0; step < blocks.count; ++step) {
      const std::int32_t block = blocks.at(step), begin = blocks.first_key(block);
      if (aligned && begin % size != 0) return false;
      if (begin + size > keys + detail::attention_rows_behind) return false;
      for (std::int32_t key = begin; key < begin + size; ++key) {
        bool counts = true;
        if (step < blocks.masked()) {
          counts = key < blocks.keys_end(block, keys) && key >= position + r - reach.left &&
                   key <= position + r + reach.right;
        }
        if (!counts) continue;
        if (key >= keys) return false;
        if (halves && step == 0 && r < 64 && key >= begin + size / 2) return false;
        ++times[static_cast<std::size_t>(key)];
      }
    }
    const AttentionKeys own = attention_keys(first + r, queries, keys, reach);
    for (std::int32_t key = 0; key < keys; ++key) {
      const bool attended = key >= own.begin && key < own.end;
      if (times[static_cast<std::size_t>(key)] != (attended ? 1 : 0)) return false;
    }
  }
  return true;
}

template <std::int32_t size>
void expect_covered(std::int32_t rows, bool halves, bool aligned = false) {
  for (const std::int32_t queries : lengths) {
    for (const std::int32_t keys : lengths) {
      if (sanitized && (queries + keys) % 3 != 0) continue;  // slow there, and one thread alone
      for (const std::int32_t left : limits) {
        for (const std::int32_t right : limits) {
          if (halves && right != 0) continue;
          for (std::int32_t first = 0; first < queries; first += rows) {
            ASSERT_TRUE(covers<size>(first, rows, queries, keys, {left, right}, halves, aligned))
                << "queries from " << first << " of " << queries << ", " << keys << " keys, left "
                << left << ", right " << right;
          }
        }
      }
    }
  }
}

TEST(AttentionSm90Blocks, CoverEveryKeyOnce) {
  expect_covered<128>(128, false);
  expect_covered<128>(192, false);
  expect_covered<80>(128, false);
  expect_covered<64>(128, false);
}

TEST(AttentionSm90Blocks, BlocksOfPagesAreAligned) {
  expect_covered<128>(128, false, true);
  expect_covered<64>(128, false, true);
}

TEST(AttentionSm90Blocks, CausalTilesNeedHalfOfTheLastBlock) { expect_covered<128>(128, true); }

// A whole number of blocks: only the diagonal needs a mask.
TEST(AttentionSm90Blocks, OnlyTheDiagonalIsMasked) {
  const auto causal = attention_tile_blocks<128>(384, 128, 1024, {attention_unlimited, 0}, 64);
  EXPECT_EQ(causal.count, 4);
  EXPECT_EQ(causal.masked(), 1);
  const auto full =
      attention_tile_blocks<128>(384, 128, 1024, {attention_unlimited, attention_unlimited}, 0);
  EXPECT_EQ(full.count, 8);
  EXPECT_EQ(full.masked(), 1);
}

// A tile without any key has one block, all masked.
TEST(AttentionSm90Blocks, ATileWithoutKeys) {
  for (const std::int32_t position : {-500, -128, 0, 3}) {
    const auto blocks = attention_tile_blocks<128>(position, 128, 0, {attention_unlimited, 0}, 64);
    EXPECT_EQ(blocks.count, 1);
    EXPECT_EQ(blocks.first_key(0), 0);
    EXPECT_LE(128, detail::attention_rows_behind);
    EXPECT_LE(blocks.keys_end(0, 0), 0);
  }
}

TEST(AttentionSm90Blocks, SmallBlocksWhereTheySpareScores) {
  constexpr AttentionReach causal{attention_unlimited, 0}, full{};
  EXPECT_EQ(attention_computed_scores<64>(512, 512, causal), 128 * 64 * (2 + 4 + 6 + 8));
  EXPECT_EQ(attention_computed_scores<80>(512, 512, causal), 128 * 80 * (2 + 4 + 5 + 7));
  EXPECT_TRUE(attention_small_blocks(512, 512, causal));
  EXPECT_EQ(attention_computed_scores<80>(512, 512, full), 4 * 128 * 80 * 7);
  EXPECT_TRUE(attention_small_blocks(512, 512, full));
  EXPECT_FALSE(attention_small_blocks(1024, 1024, full)) << "80 keys waste little";
  EXPECT_FALSE(attention_small_blocks(400, 400, full)) << "a multiple of 80";
  EXPECT_FALSE(attention_small_blocks(4096, 512, full));
  EXPECT_FALSE(attention_small_blocks(64, 1 << 28, full)) << "no long loop";
}

}  // namespace
}  // namespace ps::test
