// How the decode ladder cuts the line of blocks of keys; no GPU is needed.
#include "decode/support/cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

namespace ladder::decode {
namespace {

using Block = std::tuple<unsigned, unsigned, unsigned>;  // sequence, head, block

std::vector<Block> line_of(const std::vector<int>& lengths, unsigned heads) {
  std::vector<Block> line;
  for (unsigned b = 0; b < lengths.size(); ++b) {
    for (unsigned head = 0; head < heads; ++head) {
      for (unsigned block = 0; block < blocks_of(lengths[b]); ++block) {
        line.emplace_back(b, head, block);
      }
    }
  }
  return line;
}

// The place of a block, found one by one.
Place place_in(const std::vector<Block>& line, unsigned at) {
  const unsigned sequence = std::get<0>(line[at]);
  unsigned first = at;
  while (first > 0 && std::get<0>(line[first - 1]) == sequence) --first;
  return {sequence, at - first};
}

// All parts together compute every block once, in order, and each item's partial results are in the
// slots in which the combination looks for them.
void expect_cut(const std::vector<int>& lengths, unsigned heads, unsigned most) {
  const std::vector<Block> line = line_of(lengths, heads);
  const auto total = static_cast<unsigned>(line.size()), parts = count_of_parts(total, most);
  std::vector<Block> seen;
  std::vector<Block> slots(2 * parts, Block{~0U, 0, 0});  // the first block of each
  for (unsigned part = 0; part < parts; ++part) {
    const unsigned begin = cut(total, parts, part), end = cut(total, parts, part + 1);
    ASSERT_LE(end - begin, total / parts + 1) << "parts are equal";
    ASSERT_LT(begin, end);
    Walk walk(lengths.data(), heads, place_in(line, begin), end - begin);
    for (Run run; walk.next(run);) {
      ASSERT_LT(run.begin, run.end);
      const unsigned blocks = blocks_of(lengths[run.sequence]);
      EXPECT_EQ(run.is_first, run.begin == 0);
      EXPECT_EQ(run.is_last, run.end == blocks);
      for (unsigned block = run.begin; block < run.end; ++block) {
        EXPECT_EQ(part_of(total, parts, static_cast<unsigned>(seen.size())), part);
        seen.emplace_back(run.sequence, run.head, block);
      }
      if (run.is_whole()) continue;
      Block& slot = slots[slot_of(part, run.is_first)];
      EXPECT_EQ(std::get<0>(slot), ~0U) << "a slot for two runs";
      slot = {run.sequence, run.head, run.begin};
    }
  }
  ASSERT_EQ(seen, line);
  for (unsigned at = 0; at < total;) {
    const auto [sequence, head, block] = line[at];
    const unsigned blocks = blocks_of(lengths[sequence]);
    const unsigned first = part_of(total, parts, at), last = part_of(total, parts, at + blocks - 1);
    for (unsigned part = first; first < last && part <= last; ++part) {
      const unsigned begin = std::max(cut(total, parts, part), at) - at;
      EXPECT_EQ(slots[slot_of(part, part == first)], Block(sequence, head, begin));
    }
    at += blocks;
  }
}

TEST(DecodeCuts, ASequenceWithoutKeysHasABlock) {
  EXPECT_EQ(blocks_of(0), 1U);
  EXPECT_EQ(blocks_of(1), 1U);
  EXPECT_EQ(blocks_of(64), 1U);
  EXPECT_EQ(blocks_of(65), 2U);
}

TEST(DecodeCuts, OneSequence) {
  for (const unsigned parts : {1U, 2U, 7U, 64U}) expect_cut({64 * 64}, 1, parts);
}

TEST(DecodeCuts, WholeItems) { expect_cut({640, 640, 640}, 4, 12); }

TEST(DecodeCuts, OneLongSequence) { expect_cut({10, 5000, 0, 64, 65}, 3, 20); }

TEST(DecodeCuts, MorePartsThanBlocks) {
  expect_cut({1}, 1, 5);
  expect_cut({100, 0, 100}, 2, 37);
}

TEST(DecodeCuts, RandomLengths) {
  const unsigned seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE(::testing::Message() << "--gtest_random_seed=" << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 50; ++i) {
    std::vector<int> lengths(1 + random() % 9);
    for (int& length : lengths) length = static_cast<int>(random() % 1000);
    expect_cut(lengths, 1 + static_cast<unsigned>(random() % 8),
               1 + static_cast<unsigned>(random() % 60));
  }
}

TEST(DecodeCuts, ManyBlocksDoNotOverflow) {
  constexpr unsigned total = 4'000'000'000, parts = 264;
  EXPECT_EQ(cut(total, parts, parts), total);
  EXPECT_EQ(part_of(total, parts, total - 1), parts - 1);
  EXPECT_EQ(part_of(total, parts, cut(total, parts, 100)), 100U);
  EXPECT_EQ(part_of(total, parts, cut(total, parts, 100) - 1), 99U);
}

}  // namespace
}  // namespace ladder::decode
