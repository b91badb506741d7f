// The layout of a matrix tile in shared memory, and its descriptor for wgmma. A tile has `rows`
// along M (or N) and `columns` along K. It consists of consecutive panels, each one swizzle span
// wide along the contiguous dimension and laid out as one tensor load with the same swizzle writes
// it.
//
//   Major::k    K is contiguous: a panel is span bytes of K by all rows
//   Major::mn   M or N is contiguous: a panel is span bytes of rows by all columns
#pragma once

#include <cstdint>

#include "penstock/kit/config.h"
#include "penstock/kit/swizzle.h"

namespace ps::kit {

enum class Major : unsigned char { k, mn };

template <class Element_, unsigned rows_, unsigned columns_, Major major_ = Major::k,
          Swizzle swizzle_ = Swizzle::b128>
struct SharedTile {
  using Element = Element_;
  static constexpr unsigned rows = rows_;
  static constexpr unsigned columns = columns_;
  static constexpr Major major = major_;
  static constexpr Swizzle swizzle = swizzle_;
  static constexpr unsigned element_bytes = sizeof(Element);

  static constexpr unsigned span_bytes = span(swizzle);
  static constexpr unsigned span_elements = span_bytes / element_bytes;
  static constexpr unsigned contiguous = major == Major::k ? columns : rows;
  static constexpr unsigned across = major == Major::k ? rows : columns;
  static constexpr unsigned panels = contiguous / span_elements;
  static constexpr unsigned panel_bytes = across * span_bytes;
  static constexpr unsigned bytes = panels * panel_bytes;
  // Of the tile's address: the swizzle pattern repeats every 8 spans, counted from address 0.
  static constexpr unsigned alignment = 8 * span_bytes;

  // Columns that one wgmma instruction takes, and the number of instructions per tile.
  static constexpr unsigned slice_columns = 32 / element_bytes;
  static constexpr unsigned slices = columns / slice_columns;
  // Operand::from_row() takes multiples of this.
  static constexpr unsigned row_step = major == Major::k ? 8 : span_elements;

  static_assert(element_bytes == 1 || element_bytes == 2, "wgmma takes elements of 1 or 2 bytes");
  static_assert(element_bytes == 2 || major == Major::k, "elements of 1 byte are K-major only");
  static_assert(contiguous % span_elements == 0, "the contiguous dimension is whole spans");
  static_assert(across % 8 == 0, "the other dimension is a multiple of 8");
  static_assert(columns % slice_columns == 0, "K is a multiple of 32 bytes");

  // The byte offset of an element in the tile.
  PENSTOCK_HD static constexpr unsigned offset(unsigned row, unsigned column) {
    const unsigned along = major == Major::k ? column : row;
    const unsigned other = major == Major::k ? row : column;
    const unsigned panel = along / span_elements;
    const unsigned inside = other * span_bytes + along % span_elements * element_bytes;
    return panel * panel_bytes + swizzled(inside, swizzle);
  }

  // The byte offset of slice `k`, which the k-th instruction takes.
  PENSTOCK_HD static constexpr unsigned slice_offset(unsigned k) {
    if (major == Major::mn) return k * slice_columns * span_bytes;
    return k * 32 / span_bytes * panel_bytes + k * 32 % span_bytes;
  }

  // The byte offset of `row`, a multiple of row_step.
  PENSTOCK_HD static constexpr unsigned row_offset(unsigned row) {
    return major == Major::k ? row * span_bytes : row / span_elements * panel_bytes;
  }
};

// A wgmma descriptor of a tile in shared memory. Typed by the tile, so that a descriptor always
// matches its data.
template <class Tile_>
struct Operand {
  using Tile = Tile_;
  std::uint64_t bits;

  // `address`: shared_address() of the tile.
  PENSTOCK_HD static constexpr Operand at(std::uint32_t address) {
    return {field(address) | field(leading) << 16 | field(stride) << 32 | layout << 62};
  }

  // For the k-th instruction, k below Tile::slices.
  PENSTOCK_HD constexpr Operand slice(unsigned k) const {
    return {bits + (Tile::slice_offset(k) >> 4)};
  }
  // Without the rows before `row`, a multiple of Tile::row_step.
  PENSTOCK_HD constexpr Operand from_row(unsigned row) const {
    return {bits + (Tile::row_offset(row) >> 4)};
  }

 private:
  static constexpr bool k_major = Tile::major == Major::k;
  static constexpr bool plain = Tile::swizzle == Swizzle::none;
  // The distances to the next eight lines and to the next panel. With a swizzle the leading
  // distance is between panels; without, it is the distance along K.
  static constexpr unsigned lines = 8 * Tile::span_bytes;
  static constexpr unsigned leading = plain && !k_major ? lines : Tile::panel_bytes;
  static constexpr unsigned stride = plain && !k_major ? Tile::panel_bytes : lines;
  static constexpr std::uint64_t layout = Tile::swizzle == Swizzle::none   ? 0
                                          : Tile::swizzle == Swizzle::b128 ? 1
                                          : Tile::swizzle == Swizzle::b64  ? 2
                                                                           : 3;

  // Addresses and distances have 14 bits and count 16-byte units. The higher bits of an address are
  // the block's rank in its cluster.
  PENSTOCK_HD static constexpr std::uint64_t field(std::uint32_t of) { return (of & 0x3ffff) >> 4; }
};

}  // namespace ps::kit
