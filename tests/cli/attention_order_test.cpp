// The order in which persistent blocks of the attention ladder take tiles; no GPU is needed.
#include "attention/support/order.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace ladder::attention {
namespace {

TEST(AttentionOrder, HeadsOfAGroupHaveKeysThatStayInTheCache) {
  EXPECT_EQ(heads_in_group(32, 4096), 16U);  // of 2 MiB each
  EXPECT_EQ(heads_in_group(33, 4096), 11U);  // three groups, not two and a rest of one
  EXPECT_EQ(heads_in_group(32, 64), 32U);
  EXPECT_EQ(heads_in_group(5, 1U << 20), 1U);  // one head alone does not fit
  EXPECT_EQ(heads_in_group(1, 1), 1U);
}

TEST(AttentionOrder, EveryTileOnceAndAGroupOfHeadsAfterTheOther) {
  for (const unsigned heads : {1U, 4U, 7U}) {
    for (const unsigned group : {1U, 3U, 7U}) {
      const auto order = order_of(heads, 300, group);
      ASSERT_EQ(order.columns(), 3U);
      ASSERT_EQ(order.count(), 3 * heads);
      std::set<std::pair<unsigned, unsigned>> seen;
      unsigned group_before = 0, column_before = 0;
      for (unsigned number = 0; number < order.count(); ++number) {
        const ps::kit::Tile tile = order.tile(number);
        EXPECT_TRUE(seen.emplace(tile.row, tile.column).second) << number;
        EXPECT_LT(tile.row, heads);
        EXPECT_LT(tile.column, 3U);
        const unsigned now = tile.row / group;
        EXPECT_GE(now, group_before) << "back to an earlier group";
        if (now == group_before) {
          EXPECT_GE(tile.column, column_before) << "a longer tile after a shorter one";
        }
        group_before = now;
        column_before = tile.column;
      }
    }
  }
}

}  // namespace
}  // namespace ladder::attention
