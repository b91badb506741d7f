// The shares and the part of a trace that the page of the moe ladder shows; no GPU is needed.
#include "moe/support/tile_loop.h"

#include <gtest/gtest.h>

#include <set>

namespace ladder::moe {
namespace {

ps::RoleSpan span(unsigned block, unsigned role, std::uint64_t step, std::int64_t begin,
                  std::int64_t end) {
  return {
      .block = block, .sm = block, .role = role, .tile = step, .begin_ns = begin, .end_ns = end};
}

ps::KernelRoles roles(std::vector<ps::RoleSpan> spans) {
  return {.names = role_names(), .spans = std::move(spans), .kernel = {0, 1000}};
}

// Tiles of two steps, one after the other: loads under products, and stores of both consumers, the
// first of them under the loads of the next tile.
ps::KernelRoles loop(unsigned tiles) {
  std::vector<ps::RoleSpan> spans;
  for (unsigned tile = 0; tile < tiles; ++tile) {
    const std::int64_t at = 100 * tile;
    const std::uint64_t first = 2 * tile, last = first + 1;
    spans.push_back(span(3, 0, first, at - 10, at + 10));
    spans.push_back(span(3, 0, last, at + 20, at + 30));
    for (const unsigned consumer : {0u, 1u}) {
      spans.push_back(span(3, 1 + 2 * consumer, first, at + 10, at + 40));
      spans.push_back(span(3, 1 + 2 * consumer, last, at + 40, at + 70));
      spans.push_back(span(3, 2 + 2 * consumer, last, at + 70 + consumer, at + 95));
    }
  }
  return roles(std::move(spans));
}

TEST(MoeTileLoop, SharesCountTimeOnceAndOverAllBlocks) {
  const LoopShares shares = loop_shares(roles(
      {// 100 ns: loads 60, products of both consumers 50, stores 30, of which loads cover 10.
       span(0, 0, 0, 0, 20), span(0, 0, 1, 10, 40), span(0, 0, 2, 80, 100), span(0, 1, 0, 20, 60),
       span(0, 3, 0, 30, 70), span(0, 2, 0, 60, 90), span(0, 4, 0, 70, 90),
       // 300 ns of another block, in which everything follows each other.
       span(7, 0, 0, 500, 600), span(7, 1, 0, 600, 750), span(7, 2, 0, 750, 800)}));
  EXPECT_DOUBLE_EQ(shares.products, (50 + 150) / 400.0);
  EXPECT_DOUBLE_EQ(shares.loads, (60 + 100) / 400.0);
  EXPECT_DOUBLE_EQ(shares.stores, (30 + 50) / 400.0);
  EXPECT_DOUBLE_EQ(shares.hidden, (10 + 10) / 80.0);
}

TEST(MoeTileLoop, NothingRecordedIsNoTime) {
  const LoopShares shares = loop_shares(roles({}));
  EXPECT_EQ(shares.products, 0);
  EXPECT_EQ(shares.hidden, 0);
  EXPECT_TRUE(middle_tiles(roles({}), 0, 4, 3).spans.empty());
}

TEST(MoeTileLoop, TheSentenceHasAllShares) {
  const std::string text =
      as_sentence("up", {.products = 0.901, .loads = 0.987, .stores = 0.0625, .hidden = 0.5});
  EXPECT_EQ(text,
            "up: the tensor cores worked 90.1 % of the time; loads were in flight 98.7 % of the "
            "time; stores took 6.2 % of the time, and loads or products were in flight during "
            "50.0 % of that.");
}

TEST(MoeTileLoop, APageShowsTilesFromTheMiddleOfOneBlock) {
  ps::KernelRoles all = loop(10);
  all.spans.push_back(span(4, 1, 0, 400, 500));
  const ps::KernelRoles part = middle_tiles(all, 3, 2, 3);
  std::set<std::uint64_t> multiplied, stored;
  for (const ps::RoleSpan& each : part.spans) {
    EXPECT_EQ(each.block, 3u);
    EXPECT_GE(each.begin_ns, 0);
    EXPECT_LE(each.end_ns, part.kernel.end_ns);
    if (each.role == 1 || each.role == 3) multiplied.insert(each.tile);
    if (each.role == 2 || each.role == 4) stored.insert(each.tile);
  }
  EXPECT_EQ(multiplied, (std::set<std::uint64_t>{6, 7, 8, 9, 10, 11})) << "tiles 3, 4 and 5 of 10";
  EXPECT_EQ(stored, (std::set<std::uint64_t>{7, 9, 11}));
  // From the first product at 310 to the last store at 595; the load of tile 6 begins before that.
  EXPECT_EQ(part.kernel.end_ns, 610 - 310);
  EXPECT_EQ(part.names, all.names);
}

TEST(MoeTileLoop, ABlockWithFewTilesIsShownWhole) {
  const ps::KernelRoles all = loop(2);
  EXPECT_EQ(middle_tiles(all, 3, 2, 3).spans.size(), all.spans.size() - 1)
      << "all but the first load, which ends when the first product begins";
}

}  // namespace
}  // namespace ladder::moe
