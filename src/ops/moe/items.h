// Work items of the grouped products: which rows of which expert, and which columns. Made on the
// device; the same code runs in host tests.
#pragma once

#include <cstdint>

#include "ops/moe/workspace.h"
#include "penstock/kit/config.h"

namespace ps::detail {

// The rows of an expert are padded to units of 64. Tiles have three units, those of the portable
// kernels two; the last one or two tiles have one unit less where needed. Of tiles of three, only
// an expert of at most 64 rows has one of a single unit.
inline constexpr unsigned moe_tile_units = 3;
inline constexpr unsigned moe_portable_tile_units = 2;

// The number of tiles of an expert with this many rows.
PENSTOCK_HD constexpr unsigned moe_tiles(unsigned rows, unsigned tile_units = moe_tile_units) {
  const unsigned units = (rows + moe_unit_rows - 1) / moe_unit_rows;
  return (units + tile_units - 1) / tile_units;
}

struct MoeTile {
  unsigned first = 0;  // row, counted from the expert's first
  unsigned rows = 0;   // 1 to 192
};

// Tile `index` of an expert with this many rows.
PENSTOCK_HD constexpr MoeTile moe_tile(unsigned rows, unsigned index,
                                       unsigned tile_units = moe_tile_units) {
  const unsigned units = (rows + moe_unit_rows - 1) / moe_unit_rows;
  const unsigned tiles = moe_tiles(rows, tile_units);
  // Tiles from this one on have one unit less: one tile if a unit is missing to whole tiles, two
  // tiles if two are.
  const unsigned missing = tiles * tile_units - units;
  const unsigned short_from = units == 1 ? tiles : tiles - missing;
  const unsigned unit = index * tile_units - (index > short_from ? index - short_from : 0);
  const unsigned height = units == 1 ? 1 : index >= short_from ? tile_units - 1 : tile_units;
  const unsigned first = unit * moe_unit_rows;
  const unsigned most = height * moe_unit_rows;
  return {first, rows - first < most ? rows - first : most};
}

// One item in a work table, packed into 8 bytes.
struct MoeItem {
  unsigned slot = 0;    // of the expert's weights, below 2^13
  unsigned first = 0;   // row of h or y, below 2^31
  unsigned rows = 0;    // 1 to 192
  unsigned column = 0;  // number of the block of columns, below 2^12

  PENSTOCK_HD constexpr std::uint64_t packed() const {
    return std::uint64_t{first} << 33 | std::uint64_t{column} << 21 | std::uint64_t{rows} << 13 |
           slot;
  }
  PENSTOCK_HD static constexpr MoeItem unpacked(std::uint64_t word) {
    return {static_cast<unsigned>(word & 8191), static_cast<unsigned>(word >> 33),
            static_cast<unsigned>(word >> 13 & 255), static_cast<unsigned>(word >> 21 & 4095)};
  }
};

// The rows of an expert that are in tiles of full height; those of its short tiles follow. Cut on
// their own, both parts have the same tiles as the whole.
PENSTOCK_HD constexpr unsigned moe_tall_rows(unsigned rows, unsigned tile_units = moe_tile_units) {
  const unsigned units = (rows + moe_unit_rows - 1) / moe_unit_rows;
  const unsigned tiles = moe_tiles(rows, tile_units), missing = tiles * tile_units - units;
  if (missing == 0) return rows;
  return units == 1 ? 0 : (tiles - missing) * tile_units * moe_unit_rows;
}

// What the items of one of the products depend on, besides the rows of the experts.
struct MoeProduct {
  unsigned columns = 0;     // blocks of them
  unsigned panel = 0;       // the most tiles in a panel
  bool short_last = false;  // whether the short tiles of all experts follow all other tiles
};

// Items of one expert follow each other in panels of tiles, column by column inside a panel: blocks
// that run at the same time share the panel's rows and a column's weights. If the panel's rows,
// of `depth` elements, exceed the L2 cache, a block finds in the cache only what others have read
// shortly before. Blocks with tiles of the same height stay at the same place along their rows, so
// then the short tiles come last.
constexpr MoeProduct moe_product(std::int64_t columns, std::int64_t depth,
                                 unsigned tile_units = moe_tile_units) {
  constexpr std::int64_t cache = 30 << 20;
  constexpr unsigned panel_units = 36;
  return {static_cast<unsigned>(columns), panel_units / tile_units,
          panel_units * moe_unit_rows * 2 * depth > cache};
}

// Item `index` of an expert with `rows` rows, of moe_tiles(rows) * columns, in panels of at most
// `panel` tiles.
PENSTOCK_HD constexpr MoeItem moe_item(unsigned index, unsigned rows, unsigned columns,
                                       unsigned panel, unsigned slot, unsigned first_row,
                                       unsigned tile_units = moe_tile_units) {
  const unsigned tiles = moe_tiles(rows, tile_units);
  const unsigned panels = (tiles + panel - 1) / panel;
  // Panels of nearly equal height: the first `tall` ones have one tile more than the others.
  const unsigned low = tiles / panels, tall = tiles % panels, tall_end = tall * (low + 1);
  const unsigned before = index / columns;  // the number of some tile in the item's panel
  const unsigned number = before < tall_end ? before / (low + 1) : tall + (before - tall_end) / low;
  const unsigned begin = number * low + (number < tall ? number : tall);
  const unsigned height = low + (number < tall ? 1 : 0);
  const unsigned inside = index - begin * columns;
  const unsigned column = inside / height;
  const MoeTile tile = moe_tile(rows, begin + inside - column * height, tile_units);
  return {slot, first_row + tile.first, tile.rows, column};
}

}  // namespace ps::detail
