// The free ranges of a span, against a plain array of bytes.
#include "host/free_ranges.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <random>
#include <vector>

namespace ps::detail {
namespace {

TEST(FreeRanges, TakesTheSmallestRangeThatFits) {
  FreeRanges free(100);
  free.take_at({10, 30});  // free: 0-10, 40-100
  free.take_at({60, 30});  // free: 0-10, 40-60, 90-100
  EXPECT_EQ(free.take(15), 40U);
  EXPECT_EQ(free.take(10), 0U) << "of equal ranges the first";
  EXPECT_EQ(free.take(10), 90U);
  EXPECT_EQ(free.take(6), std::nullopt);
  EXPECT_EQ(free.largest(), 5U);
  EXPECT_EQ(free.take(5), 55U);
  EXPECT_EQ(free.largest(), 0U);
}

TEST(FreeRanges, MergesNeighbours) {
  FreeRanges free(40);
  for (std::size_t offset = 0; offset < 40; offset += 10) free.take_at({offset, 10});
  const auto given = [&](ByteRange range) {
    const ByteRange merged = free.give(range);
    return std::pair(merged.offset, merged.bytes);
  };
  EXPECT_EQ(given({10, 10}), std::pair(std::size_t{10}, std::size_t{10}));
  EXPECT_EQ(given({0, 10}), std::pair(std::size_t{0}, std::size_t{20}));
  EXPECT_EQ(given({30, 10}), std::pair(std::size_t{30}, std::size_t{10}));
  EXPECT_EQ(given({20, 10}), std::pair(std::size_t{0}, std::size_t{40}));
  EXPECT_EQ(free.take(40), 0U);
}

// Slots are given back where nothing may fail. (Sanitizers do not count.)
TEST(FreeRanges, GivingBackTakesNoMemory) {
  constexpr std::size_t ranges = 1000;
  FreeRanges free(10 * ranges);
  for (std::size_t i = 0; i < ranges; ++i) free.take_at({10 * i, 10});
  const std::size_t heap = mallinfo2().uordblks;
  for (std::size_t i = 0; i < ranges; i += 2) free.give({10 * i, 10});  // none has a neighbour
  EXPECT_LE(mallinfo2().uordblks, heap);
  for (std::size_t i = 1; i < ranges; i += 2) free.give({10 * i, 10});
  EXPECT_LE(mallinfo2().uordblks, heap);
  EXPECT_EQ(free.largest(), 10 * ranges);
}

TEST(FreeRanges, ATrialChangesNothing) {
  FreeRanges free(40);
  for (std::size_t offset = 0; offset < 40; offset += 10) free.take_at({offset, 10});
  free.give({20, 10});
  FreeRanges::Trial trial = free.trial();
  EXPECT_EQ(trial.give({0, 10}).bytes, 10U);
  const ByteRange merged = trial.give({10, 10});
  EXPECT_EQ(merged.offset, 0U);
  EXPECT_EQ(merged.bytes, 30U);
  EXPECT_EQ(free.largest(), 10U);
}

TEST(FreeRanges, NothingIsLostInRandomUse) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    constexpr std::size_t bytes = 200;
    FreeRanges free(bytes);
    std::vector<bool> taken(bytes);
    std::vector<ByteRange> held;
    for (int step = 0; step < 2000; ++step) {
      if (held.empty() || random() % 2 == 0) {
        const std::size_t wanted = 1 + random() % 30;
        const auto offset = free.take(wanted);
        if (!offset) continue;
        for (std::size_t i = *offset; i < *offset + wanted; ++i) {
          ASSERT_FALSE(taken[i]);
          taken[i] = true;
        }
        held.push_back({*offset, wanted});
      } else {
        std::swap(held[random() % held.size()], held.back());
        for (std::size_t i = held.back().offset; i < held.back().end(); ++i) taken[i] = false;
        free.give(held.back());
        held.pop_back();
      }
      std::size_t run = 0, longest = 0;
      for (const bool byte : taken) longest = std::max(longest, run = byte ? 0 : run + 1);
      ASSERT_EQ(free.largest(), longest);
    }
  }
}

}  // namespace
}  // namespace ps::detail
