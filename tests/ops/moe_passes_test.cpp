// How the kernel `decode` of moe() shares out its work, and when it is taken.
#include "ops/moe/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/moe/workspace.h"

namespace ps::test {
namespace {

using detail::moe_decodes;
using detail::moe_pass;
using detail::moe_passes;
using detail::moe_path;
using detail::MoeItem;
using detail::MoePart;
using detail::MoePath;
using detail::MoeRun;

TEST(MoePasses, CoverAllRowsOnceInOrder) {
  for (const unsigned most : {8U, 64U}) {
    for (unsigned rows = 0; rows <= 700; ++rows) {
      unsigned next = 1000;
      for (unsigned i = 0; i < moe_passes(rows, most); ++i) {
        const MoeItem pass = moe_pass(i, rows, most, 7, 1000);
        ASSERT_EQ(pass.slot, 7U);
        ASSERT_EQ(pass.first, next) << rows << " rows, pass " << i;
        ASSERT_GE(pass.rows, 1U) << rows << " rows, pass " << i;
        ASSERT_LE(pass.rows, most) << rows << " rows, pass " << i;
        const MoeItem read = MoeItem::unpacked(pass.packed());
        ASSERT_EQ(read.first, pass.first);
        ASSERT_EQ(read.rows, pass.rows);
        next += pass.rows;
      }
      ASSERT_EQ(next, 1000 + rows);
    }
  }
}

// However rows are spread over experts: evenly, or all but one per expert on the first.
TEST(MoePasses, AreNoMoreThanTheTableHolds) {
  for (const std::int64_t tokens : {1, 2, 8, 9, 64, 100, 5000}) {
    for (const std::int64_t choices : {1, 3, 16}) {
      for (const std::int64_t experts : {1, 2, 60, 1024}) {
        const std::int64_t rows = tokens * choices, used = std::min(rows, experts);
        const unsigned most = detail::moe_rows_per_pass(tokens);
        const auto passes = [&](std::int64_t of) {
          return std::int64_t{moe_passes(static_cast<unsigned>(of), most)};
        };
        const std::int64_t table = detail::moe_most_passes(rows, experts);
        EXPECT_LE(used - 1 + passes(rows - used + 1), table) << tokens << ", " << experts;
        const std::int64_t more = rows % used;
        EXPECT_LE(more * passes(rows / used + 1) + (used - more) * passes(rows / used), table)
            << tokens << ", " << experts;
      }
    }
  }
}

TEST(MoeRuns, CoverAllUnitsOnceAndEvenly) {
  for (const unsigned blocks : {1U, 2U, 7U, 132U}) {
    for (const unsigned passes : {0U, 1U, 8U, 127U, 1024U}) {
      for (const unsigned units : {1U, 2U, 9U, 96U, 128U}) {
        for (const unsigned most : {4U, 8U}) {
          const std::uint64_t all = std::uint64_t{passes} * units;
          std::uint64_t next = 0;
          for (unsigned block = 0; block < blocks; ++block) {
            MoeRun run(passes, units, block, blocks);
            MoePart part;
            std::uint64_t own = 0;
            while (run.next(part, most)) {
              ASSERT_GE(part.units, 1U);
              ASSERT_LE(part.units, most);
              ASSERT_LE(part.unit + part.units, units) << "a part ends inside its pass";
              ASSERT_EQ(std::uint64_t{part.pass} * units + part.unit, next);
              next += part.units;
              own += part.units;
            }
            ASSERT_GE(own, all / blocks);
            ASSERT_LE(own, (all + blocks - 1) / blocks);
          }
          ASSERT_EQ(next, all);
        }
      }
    }
  }
}

TEST(MoeRuns, HavePartsOfNearlyEqualLength) {
  for (unsigned units = 1; units <= 100; ++units) {
    MoeRun run(1, units, 0, 1);
    MoePart part;
    unsigned shortest = units, longest = 0, count = 0;
    for (; run.next(part, 8); ++count) {
      shortest = std::min(shortest, part.units);
      longest = std::max(longest, part.units);
    }
    EXPECT_LE(longest - shortest, 1U) << units;
    EXPECT_EQ(count, (units + 7) / 8) << units;
  }
}

// More units than 32 bits hold.
TEST(MoeRuns, OfManyUnits) {
  constexpr unsigned passes = 1U << 25, units = 1U << 14, blocks = 132;
  MoeRun run(passes, units, blocks - 1, blocks);
  MoePart part;
  ASSERT_TRUE(run.next(part, 8));
  constexpr std::uint64_t all = std::uint64_t{passes} * units;
  constexpr std::uint64_t begin = all - all / blocks;  // of the last block, which has no extra unit
  EXPECT_EQ(std::uint64_t{part.pass} * units + part.unit, begin);
}

TEST(MoePath, FollowsTheRowsPerExpert) {
  // Qwen3-30B: 8 of 128 experts.
  EXPECT_EQ(moe_path(1, 8, 128), MoePath::decode);
  EXPECT_EQ(moe_path(64, 8, 128), MoePath::decode);
  EXPECT_EQ(moe_path(256, 8, 128), MoePath::by_counts);
  EXPECT_EQ(moe_path(480, 8, 128), MoePath::by_counts);
  EXPECT_EQ(moe_path(512, 8, 128), MoePath::large);
  EXPECT_EQ(moe_path(4096, 8, 128), MoePath::large);
  // A single expert has all rows.
  EXPECT_EQ(moe_path(64, 1, 1), MoePath::decode);
  EXPECT_EQ(moe_path(65, 1, 1), MoePath::large);

  EXPECT_TRUE(moe_decodes(0, 0));
  EXPECT_TRUE(moe_decodes(128, 128));  // 24 rows or fewer each
  EXPECT_TRUE(moe_decodes(160, 128));  // a quarter of them with more
  EXPECT_FALSE(moe_decodes(161, 128));
  EXPECT_FALSE(moe_decodes(20, 10));
}

// What the host decides is what the counts would have decided: with rows spread as evenly as
// possible, which makes the fewest shares.
TEST(MoePath, OfTheHostAgreesWithAnyCounts) {
  for (const std::int64_t tokens : {65, 100, 500, 1280, 1281, 2000}) {
    for (const std::int64_t experts : {1, 2, 8, 128}) {
      if (moe_path(tokens, 8, experts) != MoePath::large) continue;
      const std::int64_t rows = tokens * 8, more = rows % experts;
      const auto passes = [&](std::int64_t of) {
        return std::uint64_t{moe_passes(static_cast<unsigned>(of), detail::moe_share_rows)};
      };
      const std::uint64_t fewest =
          static_cast<std::uint64_t>(more) * passes(rows / experts + 1) +
          static_cast<std::uint64_t>(experts - more) * passes(rows / experts);
      EXPECT_FALSE(moe_decodes(fewest, static_cast<std::uint64_t>(experts)))
          << tokens << " tokens, " << experts << " experts";
    }
  }
}

}  // namespace
}  // namespace ps::test
