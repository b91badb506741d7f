// How moe() cuts rows into tiles and work items, and the layout of its workspace.
#include "ops/moe/items.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ops/moe/workspace.h"
#include "penstock/base/units.h"

namespace ps::test {
namespace {

using detail::moe_item;
using detail::moe_tall_rows;
using detail::moe_tile;
using detail::moe_tiles;
using detail::MoeItem;
using detail::MoeTile;
using detail::MoeWorkspace;

TEST(MoeTiles, CoverAllRowsOnceInOrder) {
  for (unsigned rows = 0; rows <= 2000; ++rows) {
    unsigned next = 0, padded = 0;
    for (unsigned i = 0; i < moe_tiles(rows); ++i) {
      const MoeTile tile = moe_tile(rows, i);
      ASSERT_EQ(tile.first, next) << rows << " rows, tile " << i;
      ASSERT_EQ(tile.first % 64, 0U) << rows << " rows, tile " << i;
      ASSERT_GE(tile.rows, 1U) << rows << " rows, tile " << i;
      ASSERT_LE(tile.rows, 192U) << rows << " rows, tile " << i;
      next += tile.rows;
      padded += (tile.rows + 63) / 64 * 64;
    }
    ASSERT_EQ(next, rows);
    ASSERT_EQ(padded, (rows + 63) / 64 * 64) << rows << " rows: more is padded than one unit";
    ASSERT_LE(moe_tiles(rows), detail::moe_most_tiles(rows, 1)) << rows;
  }
}

TEST(MoeTiles, AreShortOnlyWhereTheyMustBe) {
  for (unsigned rows = 65; rows <= 2000; ++rows) {
    for (unsigned i = 0; i < moe_tiles(rows); ++i) {
      ASSERT_GT(moe_tile(rows, i).rows, 64U) << rows << " rows, tile " << i;
    }
  }
}

// Tiles of the portable kernels: 128 rows, but for the last.
TEST(MoeTiles, OfTwoUnitsCoverAllRowsOnceInOrder) {
  for (unsigned rows = 0; rows <= 2000; ++rows) {
    const unsigned tiles = moe_tiles(rows, 2);
    ASSERT_EQ(tiles, (rows + 127) / 128);
    ASSERT_LE(tiles, detail::moe_most_tiles(rows, 1)) << rows;
    for (unsigned i = 0; i < tiles; ++i) {
      const MoeTile tile = moe_tile(rows, i, 2);
      ASSERT_EQ(tile.first, 128 * i) << rows << " rows, tile " << i;
      ASSERT_EQ(tile.rows, i + 1 < tiles ? 128 : rows - 128 * i) << rows << " rows, tile " << i;
    }
  }
}

TEST(MoeItems, OfTwoUnitsNameEveryTileAndColumnOnce) {
  for (const unsigned rows : {1U, 64U, 65U, 129U, 1000U, 4000U}) {
    std::set<std::pair<unsigned, unsigned>> seen;
    for (unsigned i = 0; i < moe_tiles(rows, 2) * 5; ++i) {
      const MoeItem item = moe_item(i, rows, 5, 18, 3, 100, 2);
      ASSERT_EQ((item.first - 100) % 128, 0U);
      ASSERT_EQ(item.rows, std::min(128U, rows - (item.first - 100)));
      ASSERT_TRUE(seen.emplace(item.first, item.column).second) << rows << " rows, item " << i;
    }
  }
}

// However rows are spread over experts.
TEST(MoeTiles, AreNoMoreThanTheTablesHold) {
  for (const unsigned experts : {1U, 2U, 3U, 8U, 100U}) {
    for (const unsigned each : {0U, 1U, 63U, 64U, 65U, 128U, 129U, 192U, 193U, 256U, 257U, 1000U}) {
      for (const unsigned last : {0U, 1U, 64U, 65U, 193U, 385U}) {
        const unsigned rows = (experts - 1) * each + last;
        const unsigned tiles = (experts - 1) * moe_tiles(each) + moe_tiles(last);
        EXPECT_LE(tiles, detail::moe_most_tiles(rows, experts))
            << experts << " experts of " << each << " rows, the last one of " << last;
      }
    }
  }
}

TEST(MoeItems, NameEveryTileAndColumnOnce) {
  constexpr unsigned slot = 7, first_row = 12345;
  for (const auto& [columns, height] : std::initializer_list<std::pair<unsigned, unsigned>>{
           {1, 12}, {2, 1}, {3, 5}, {8, 64}, {28, 6}, {113, 3}}) {
    for (unsigned rows = 1; rows <= 6000; rows += rows < 800 ? 1 : 61) {
      const unsigned tiles = moe_tiles(rows);
      std::set<std::pair<unsigned, unsigned>> seen;
      for (unsigned i = 0; i < tiles * columns; ++i) {
        const MoeItem item = moe_item(i, rows, columns, height, slot, first_row);
        ASSERT_EQ(item.slot, slot);
        ASSERT_LT(item.column, columns) << rows << " rows, item " << i;
        ASSERT_TRUE(seen.emplace(item.first, item.column).second)
            << rows << " rows, " << columns << " columns, item " << i;
      }
      for (unsigned tile = 0; tile < tiles; ++tile) {
        ASSERT_TRUE(seen.contains({first_row + moe_tile(rows, tile).first, columns - 1}));
      }
    }
  }
}

TEST(MoeItems, HaveTheRowsOfTheirTile) {
  for (const unsigned rows : {1U, 64U, 65U, 256U, 1000U, 4000U}) {
    std::map<unsigned, unsigned> tiles;  // rows, by the first
    for (unsigned i = 0; i < moe_tiles(rows); ++i) {
      tiles[moe_tile(rows, i).first] = moe_tile(rows, i).rows;
    }
    for (unsigned i = 0; i < moe_tiles(rows) * 5; ++i) {
      const MoeItem item = moe_item(i, rows, 5, 12, 0, 0);
      ASSERT_EQ(item.rows, tiles.at(item.first)) << rows << " rows, item " << i;
    }
  }
}

// Column by column inside a panel, and panels of at most so many tiles.
TEST(MoeItems, FollowEachOtherInPanels) {
  constexpr unsigned columns = 9, height = 12;
  for (const unsigned rows : {1U, 500U, 2304U, 2305U, 4608U, 10000U}) {
    unsigned highest = 0, last_column = 0;
    std::set<unsigned> panel;  // the first rows of its tiles
    for (unsigned i = 0; i < moe_tiles(rows) * columns; ++i) {
      const MoeItem item = moe_item(i, rows, columns, height, 0, 0);
      if (item.column < last_column) {  // a new panel
        ASSERT_EQ(item.column, 0U) << rows << " rows, item " << i;
        ASSERT_GT(item.first, highest);
        panel.clear();
      }
      panel.insert(item.first);
      ASSERT_LE(panel.size(), height);
      highest = std::max(highest, item.first);
      last_column = item.column;
    }
  }
}

TEST(MoeItems, ShortTilesComeLastIfAPanelExceedsTheCache) {
  for (const std::int64_t depth : {8, 2048, 4096, 6144}) {
    EXPECT_FALSE(detail::moe_product(1, depth).short_last) << depth;
  }
  for (const std::int64_t depth : {7168, 14336, 1 << 20}) {
    EXPECT_TRUE(detail::moe_product(1, depth).short_last) << depth;
  }
  EXPECT_EQ(detail::moe_product(5, 8).columns, 5U);
  // As many rows, whatever the tiles.
  EXPECT_EQ(detail::moe_product(1, 8).panel, 12U);
  EXPECT_EQ(detail::moe_product(1, 8, detail::moe_portable_tile_units).panel, 18U);
}

// The tall tiles of an expert, then its short ones: the same tiles, and none of them cut.
TEST(MoeItems, OfTheTallAndTheShortTilesAreThoseOfTheExpert) {
  constexpr unsigned columns = 3;
  for (const unsigned units : {detail::moe_tile_units, detail::moe_portable_tile_units}) {
    for (unsigned rows = 0; rows <= 2000; ++rows) {
      const unsigned tall = moe_tall_rows(rows, units);
      ASSERT_LE(tall, rows);
      std::vector<MoeTile> tiles;
      for (unsigned i = 0; i < moe_tiles(tall, units); ++i) {
        tiles.push_back(moe_tile(tall, i, units));
        ASSERT_EQ((tiles.back().rows + 63) / 64, units) << rows << " rows, tile " << i;
      }
      for (unsigned i = 0; i < moe_tiles(rows - tall, units); ++i) {
        const MoeTile tile = moe_tile(rows - tall, i, units);
        tiles.push_back({tall + tile.first, tile.rows});
        ASSERT_LT((tile.rows + 63) / 64, units) << rows << " rows, short tile " << i;
      }
      ASSERT_EQ(tiles.size(), moe_tiles(rows, units)) << rows << " rows";
      for (unsigned i = 0; i < tiles.size(); ++i) {
        const MoeTile tile = moe_tile(rows, i, units);
        ASSERT_EQ(tiles[i].first, tile.first) << rows << " rows, tile " << i;
        ASSERT_EQ(tiles[i].rows, tile.rows) << rows << " rows, tile " << i;
      }
      std::set<std::pair<unsigned, unsigned>> seen;
      for (const auto& [first, count] : {std::pair{0U, tall}, std::pair{tall, rows - tall}}) {
        for (unsigned i = 0; i < moe_tiles(count, units) * columns; ++i) {
          const MoeItem item = moe_item(i, count, columns, 12, 0, first, units);
          ASSERT_TRUE(seen.emplace(item.first, item.column).second) << rows << " rows, item " << i;
        }
      }
      ASSERT_EQ(seen.size(), tiles.size() * columns) << rows << " rows";
    }
  }
}

// Products of tiles and panels that do not fit 32 bits must not come up.
TEST(MoeItems, OfAnExpertWithAllRowsThereMayBe) {
  constexpr unsigned rows = (1U << 31) - 1, tiles = moe_tiles(rows);
  constexpr unsigned height = 7;
  for (const unsigned columns : {1U, 3U, 100U}) {
    const MoeItem last = moe_item(tiles * columns - 1, rows, columns, height, 0, 0);
    EXPECT_EQ(last.column, columns - 1);
    EXPECT_EQ(last.first + last.rows, rows);
    const MoeItem first = moe_item(0, rows, columns, height, 0, 0);
    EXPECT_EQ(first.column, 0U);
    EXPECT_EQ(first.first, 0U);
    for (unsigned i = 1000; i < tiles * columns; i += 10'000'019) {
      const MoeItem item = moe_item(i, rows, columns, height, 0, 0),
                    next = moe_item(i + 1, rows, columns, height, 0, 0);
      EXPECT_TRUE(next.first > item.first || next.column > item.column) << i;
    }
  }
}

TEST(MoeItems, ArePackedWithoutLoss) {
  for (const unsigned slot : {0U, 1U, 8191U}) {
    for (const unsigned first : {0U, 1U, (1U << 31) - 1}) {
      for (const unsigned rows : {1U, 64U, 192U}) {
        for (const unsigned column : {0U, 1U, 4095U}) {
          const MoeItem item = MoeItem::unpacked(MoeItem{slot, first, rows, column}.packed());
          EXPECT_EQ(item.slot, slot);
          EXPECT_EQ(item.first, first);
          EXPECT_EQ(item.rows, rows);
          EXPECT_EQ(item.column, column);
        }
      }
    }
  }
}

struct MoeSizes {
  std::int64_t tokens, hidden, width, experts, choices;
};

TEST(MoeWorkspace, HasPartsThatAreAlignedAndApart) {
  for (const MoeSizes& s :
       {MoeSizes{0, 8, 8, 1, 1}, MoeSizes{1, 8, 8, 1, 1}, MoeSizes{5, 24, 40, 3, 2},
        MoeSizes{1000, 128, 72, 60, 7}, MoeSizes{16384, 2048, 768, 128, 8}}) {
    for (const std::size_t element : {2, 4}) {
      const std::int64_t rows = s.tokens * s.choices;
      const MoeWorkspace space = detail::moe_workspace(rows, s.experts, s.hidden, s.width, element);
      const auto tiles = static_cast<std::size_t>(detail::moe_most_tiles(rows, s.experts));
      const auto up = static_cast<std::size_t>(detail::moe_up_columns(s.width));
      const auto down = static_cast<std::size_t>(detail::moe_down_columns(s.hidden));
      const auto blocks = static_cast<std::size_t>(detail::moe_blocks(rows));
      const auto R = static_cast<std::size_t>(rows), E = static_cast<std::size_t>(s.experts),
                 d = static_cast<std::size_t>(s.hidden), n = static_cast<std::size_t>(s.width);
      const auto passes = static_cast<std::size_t>(detail::moe_most_passes(rows, s.experts));
      std::multimap<std::size_t, std::size_t> parts{
          // bytes, by where they begin
          {space.counters, 5 * 4},
          {space.histograms, blocks * E * 4},
          {space.offsets, E * 4 + 4},
          {space.source, R * 4},
          {space.place, R * 4},
          {space.up_items, tiles * up * 8},
          {space.down_items, tiles * down * 8},
          {space.passes, std::max<std::size_t>(passes, 32) * 8},
          {space.h, (R + 32) * n * element},
          {space.y, (R + 32) * d * element}};
      std::size_t end = 0;
      for (const auto& [begin, bytes] : parts) {
        EXPECT_EQ(begin % 256, 0U);
        if (bytes > 0) {
          EXPECT_GE(begin, end);
        }
        end = std::max(end, begin + bytes);
      }
      EXPECT_LE(end, space.bytes);
      EXPECT_EQ(space.bytes % 256, 0U);
      EXPECT_EQ(space.h_first, space.h + 16 * n * element);
      EXPECT_EQ(space.y_first, space.y + 16 * d * element);
      EXPECT_EQ(space.h_first % 256, 0U);
      EXPECT_EQ(space.y_first % 256, 0U);
    }
  }
}

TEST(MoeWorkspace, IsLittleMoreThanTheRows) {
  for (const MoeSizes& s :
       {MoeSizes{16384, 2048, 768, 128, 8}, MoeSizes{24576, 1536, 256, 128, 8},
        MoeSizes{32768, 4096, 512, 128, 8}, MoeSizes{32768, 2048, 1024, 64, 8},
        MoeSizes{16384, 4096, 14336, 8, 2}, MoeSizes{16384, 7168, 2048, 64, 8}}) {
    const std::int64_t rows = s.tokens * s.choices, row = (s.hidden + s.width) * 2;
    const MoeWorkspace space = detail::moe_workspace(rows, s.experts, s.hidden, s.width, 2);
    EXPECT_GE(space.bytes, static_cast<std::size_t>(rows * row));
    EXPECT_LE(space.bytes, static_cast<std::size_t>(rows * row + 16 * rows + 64 * row) + MiB)
        << s.tokens << " tokens of " << s.hidden;
  }
}

}  // namespace
}  // namespace ps::test
