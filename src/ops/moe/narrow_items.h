// Work items of the down-projection of narrow experts (sm90_narrow.cuh). An item has up to 128 rows
// of an expert and walks along columns of y. Made on the device; the same code runs in host tests.
#pragma once

#include "ops/moe/items.h"
#include "penstock/kit/config.h"

namespace ps::detail {

// The largest n: consumers keep rows of h in registers.
inline constexpr unsigned moe_narrow_width = 256;
inline constexpr unsigned moe_narrow_tile_units = 2;

// Columns of an item, in blocks of moe_item_columns.
struct MoeWalk {
  unsigned begin = 0, end = 0;
};

// Shares of `blocks` blocks of columns, cut into up to 1, 2 or 4 shares of the same length, the
// last of which may be shorter. They are numbered 1; 2 and 3; or 4 to 7.
PENSTOCK_HD constexpr MoeWalk moe_walk(unsigned share, unsigned blocks) {
  const unsigned shares = share < 2 ? 1 : share < 4 ? 2 : 4;
  const unsigned length = (blocks + shares - 1) / shares, begin = (share - shares) * length;
  return {begin, begin + length < blocks ? begin + length : blocks};
}

// The table of all experts' items. The fewer shares, the less often rows are loaded; but towards
// the end of the table there are more shares, so that all thread blocks end at nearly the same
// time.
struct MoeNarrowTable {
  unsigned tiles = 0;   // of all experts, at most 128 rows each
  unsigned blocks = 0;  // of columns

  static constexpr unsigned round = 132;  // tiles; about as many as a GPU has multiprocessors

  // Into how many shares the columns of a tile are cut, at most.
  PENSTOCK_HD constexpr unsigned shares(unsigned tile) const {
    return tile < whole() ? 1 : tile < halved() ? 2 : 4;
  }

  // The number of items of such a tile.
  PENSTOCK_HD constexpr unsigned items(unsigned shares) const {
    const unsigned length = (blocks + shares - 1) / shares;
    return (blocks + length - 1) / length;
  }

  // The number of items before those of a tile; for `tiles`, of all items.
  PENSTOCK_HD constexpr unsigned before(unsigned tile) const {
    if (tile <= whole()) return tile;
    if (tile <= halved()) return whole() + (tile - whole()) * items(2);
    return whole() + (halved() - whole()) * items(2) + (tile - halved()) * items(4);
  }

 private:
  // Tiles before these are not cut, or cut into no more than two shares.
  PENSTOCK_HD constexpr unsigned whole() const { return tiles < 4 * round ? 0 : tiles - 4 * round; }
  PENSTOCK_HD constexpr unsigned halved() const { return tiles < round ? 0 : tiles - round; }
};

}  // namespace ps::detail
