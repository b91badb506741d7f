// The arithmetic of masks and sequences, against the definition.
#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <random>
#include <vector>

#include "ops/attention/mask.h"
#include "ops/attention/work.h"

namespace ps::test {
namespace {

using detail::attention_blocks;
using detail::attention_keys;
using detail::attention_unlimited;
using detail::AttentionBlocks;
using detail::AttentionKeys;
using detail::AttentionReach;
using detail::AttentionSequence;
using detail::AttentionSequences;

bool attends(std::int32_t query, std::int32_t key, std::int32_t queries, std::int32_t keys,
             AttentionReach reach) {
  const std::int64_t position = std::int64_t{query} + keys - queries;
  return key >= position - reach.left && key <= position + reach.right;
}

// Whether all blocks are where they should be for every tile of queries.
bool blocks_are_right(std::int32_t queries, std::int32_t keys, AttentionReach reach,
                      std::int32_t tile, std::int32_t block) {
  for (std::int32_t first = 0; first < queries; first += tile) {
    const std::int32_t last = std::min(first + tile, queries);
    const AttentionBlocks found = attention_blocks(first, last, queries, keys, reach, block);
    if (found.begin > found.whole_begin || found.whole_begin > found.whole_end ||
        found.whole_end > found.end) {
      return false;
    }
    for (std::int32_t number = 0; number * block < keys + block; ++number) {
      bool any = false, all = (number + 1) * block <= keys;
      for (std::int32_t key = number * block; key < std::min(keys, (number + 1) * block); ++key) {
        for (std::int32_t query = first; query < last; ++query) {
          const bool yes = attends(query, key, queries, keys, reach);
          any |= yes;
          all &= yes;
        }
      }
      const bool inside = number >= found.begin && number < found.end;
      const bool whole = number >= found.whole_begin && number < found.whole_end;
      if (any != inside || (whole && !all) || (all && inside && !whole)) return false;
    }
  }
  return true;
}

std::vector<AttentionReach> reaches(std::int32_t most) {
  std::vector<AttentionReach> all;
  for (const std::int32_t left : {0, 1, 3, 7, most, attention_unlimited}) {
    for (const std::int32_t right : {0, 2, 5, most, attention_unlimited}) {
      all.push_back({left, right});
    }
  }
  return all;
}

TEST(AttentionMask, KeysOfEveryQuery) {
  for (std::int32_t queries = 1; queries <= 24; ++queries) {
    for (std::int32_t keys = 0; keys <= 24; ++keys) {
      for (const AttentionReach reach : reaches(11)) {
        for (std::int32_t query = 0; query < queries; ++query) {
          const AttentionKeys found = attention_keys(query, queries, keys, reach);
          for (std::int32_t key = 0; key < keys; ++key) {
            ASSERT_EQ(key >= found.begin && key < found.end,
                      attends(query, key, queries, keys, reach))
                << queries << " " << keys << " " << reach.left << " " << reach.right;
          }
        }
      }
    }
  }
}

TEST(AttentionMask, BlocksOfAllSmallSizes) {
  for (std::int32_t queries = 1; queries <= 20; ++queries) {
    for (std::int32_t keys = 0; keys <= 20; ++keys) {
      for (const AttentionReach reach : reaches(9)) {
        ASSERT_TRUE(blocks_are_right(queries, keys, reach, 4, 5))
            << queries << " " << keys << " " << reach.left << " " << reach.right;
      }
    }
  }
}

TEST(AttentionMask, BlocksOfRandomSizes) {
  std::mt19937 random(1);
  const auto up_to = [&](unsigned most) {
    return static_cast<std::int32_t>(random() % (most + 1));
  };
  for (int round = 0; round < 3000; ++round) {
    const std::int32_t queries = 1 + up_to(99), keys = up_to(100);
    const AttentionReach reach{up_to(3) == 0 ? attention_unlimited : up_to(110),
                               up_to(2) == 0 ? attention_unlimited : up_to(40)};
    const std::int32_t tile = 1 + up_to(40), block = 1 + up_to(40);
    ASSERT_TRUE(blocks_are_right(queries, keys, reach, tile, block))
        << queries << " " << keys << " " << reach.left << " " << reach.right << " " << tile << " "
        << block;
  }
}

TEST(AttentionMask, TheLongestSequencesDoNotOverflow) {
  constexpr std::int32_t most = detail::attention_most_rows - 1;
  const AttentionKeys last = attention_keys(most - 1, most, most, {});
  EXPECT_EQ(last.begin, 0);
  EXPECT_EQ(last.end, most);
  const AttentionKeys few = attention_keys(0, most, 1, {.left = attention_unlimited, .right = 0});
  EXPECT_LE(few.end, 0);
  EXPECT_EQ(attention_blocks(0, 128, most, 1, {.right = 0}, 128).count(), 0);
  EXPECT_EQ(attention_blocks(most - 1, most, most, most, {}, 128).count(), 1 << 22);
}

TEST(AttentionSequences, AreInsideTheirTensorsWhateverTheLengths) {
  std::mt19937 random(2);
  const std::vector<std::int32_t> odd{INT_MIN, -1, 0, 1, 7, 9, 10, 11, INT_MAX};
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::int32_t> values(6);
    for (std::int32_t& value : values) value = odd[random() % odd.size()];
    const AttentionSequences sequences{
        .count = 1,
        .q_rows = 9,
        .k_rows = 10,
        .max_q = static_cast<std::int32_t>(random() % 10),
        .max_k = static_cast<std::int32_t>(random() % 11),
        .cu_q = random() % 2 == 0 ? values.data() : nullptr,
        .cu_k = random() % 2 == 0 ? values.data() + 2 : nullptr,
        .first_k = random() % 2 == 0 ? values.data() + 4 : nullptr,
        .lengths_k = random() % 2 == 0 ? values.data() + 5 : nullptr};
    const AttentionSequence found = sequences(0);
    ASSERT_GE(found.q_begin, 0);
    ASSERT_GE(found.q_length, 0);
    ASSERT_LE(found.q_begin + found.q_length, 9);
    ASSERT_LE(found.q_length, sequences.max_q);
    ASSERT_GE(found.k_begin, 0);
    ASSERT_GE(found.k_length, 0);
    ASSERT_LE(found.k_begin + found.k_length, 10);
    ASSERT_LE(found.k_length, sequences.max_k);
  }
}

}  // namespace
}  // namespace ps::test
