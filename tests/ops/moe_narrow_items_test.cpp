// The work items of moe()'s down-projection for narrow experts.
#include "ops/moe/narrow_items.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/moe/workspace.h"

namespace ps::test {
namespace {

using detail::moe_walk;
using detail::MoeNarrowTable;
using detail::MoeWalk;

TEST(MoeWalks, OfATileHaveEveryBlockOfColumnsOnce) {
  for (unsigned blocks = 1; blocks <= 300; ++blocks) {
    const MoeNarrowTable table{1, blocks};
    for (const unsigned shares : {1U, 2U, 4U}) {
      unsigned next = 0;
      ASSERT_LE(table.items(shares), shares) << blocks << " blocks";
      for (unsigned i = 0; i < table.items(shares); ++i) {
        const MoeWalk walk = moe_walk(shares + i, blocks);
        ASSERT_EQ(walk.begin, next) << blocks << " blocks, share " << shares + i;
        ASSERT_GT(walk.end, walk.begin) << blocks << " blocks, share " << shares + i;
        ASSERT_LE(walk.end - walk.begin, (blocks + shares - 1) / shares);
        next = walk.end;
      }
      ASSERT_EQ(next, blocks) << shares << " shares";
    }
  }
}

TEST(MoeNarrowTables, HaveTheItemsOfAllTilesWithoutGaps) {
  for (const unsigned blocks : {1U, 2U, 3U, 6U, 28U}) {
    for (const unsigned tiles : {0U, 1U, 131U, 132U, 133U, 527U, 528U, 529U, 2000U}) {
      const MoeNarrowTable table{tiles, blocks};
      unsigned next = 0, most = 1;
      for (unsigned tile = 0; tile < tiles; ++tile) {
        ASSERT_EQ(table.before(tile), next) << tiles << " tiles, " << tile;
        ASSERT_GE(table.shares(tile), most) << "fewer shares towards the end";
        most = table.shares(tile);
        next += table.items(most);
      }
      ASSERT_EQ(table.before(tiles), next) << tiles << " tiles";
      ASSERT_LE(next, tiles * blocks) << "more items than the workspace has room for";
      if (tiles > 0) {
        EXPECT_EQ(most, 4U) << "whole walks at the end";
      }
      if (tiles > 528) {
        EXPECT_EQ(table.shares(0), 1U);
      }
    }
  }
}

// The workspace has room for as many tiles, however rows are spread over experts.
TEST(MoeNarrowTables, HaveNoMoreTilesThanTheWorkspace) {
  for (const unsigned experts : {1U, 2U, 100U}) {
    for (const unsigned each : {0U, 1U, 64U, 65U, 128U, 129U, 193U, 1000U}) {
      for (const unsigned last : {0U, 1U, 128U, 129U}) {
        const auto tiles = [](unsigned rows) {
          return detail::moe_tiles(rows, detail::moe_narrow_tile_units);
        };
        EXPECT_LE((experts - 1) * tiles(each) + tiles(last),
                  detail::moe_most_tiles((experts - 1) * each + last, experts))
            << experts << " experts of " << each << " rows, the last one of " << last;
      }
    }
  }
}

}  // namespace
}  // namespace ps::test
