// Tiles of the portable products of moe(), and which elements of a tile a thread computes.
//
// A block computes work items of up to 128 rows and 256 columns of a product. Its eight warps are
// in 2 rows and 4 columns; a warp has 64 columns. Warps divide every 32 rows, so that items of few
// rows need fewer products. A lane holds fragments of 16 x 8 elements as mma.sync makes them:
// `pair` adjacent columns of eight. Products in f32 have the same fragments, with one column per
// lane.
#pragma once

#include <cstdint>

#include "ops/moe/items.h"
#include "ops/moe/work.h"
#include "penstock/kit/scheduler.h"
#include "penstock/kit/tile.h"
#include "penstock/kit/warp.cuh"

namespace ps::detail::moe_portable {

// Configuration
constexpr unsigned threads = 256;
constexpr unsigned depth = 4;         // steps in shared memory
constexpr unsigned row_bytes = 64;    // of K, in a step
constexpr unsigned chunk_bytes = 16;  // of a copy
constexpr unsigned tile_rows = moe_portable_tile_units * moe_unit_rows;
constexpr unsigned tile_columns = moe_item_columns;
constexpr unsigned warp_columns = 64;
constexpr unsigned group_rows = 32;  // that two warps divide
constexpr unsigned groups = tile_rows / group_rows;
constexpr unsigned fragments = warp_columns / 8;

// The product that a kernel computes. `major`: which dimension of the weights is contiguous.
template <class Element_, bool up_, kit::Major major_>
struct Config {
  using Element = Element_;
  static constexpr bool up = up_;  // gate and up with the activation, or down
  static constexpr kit::Major major = major_;

  static constexpr unsigned bytes = sizeof(Element);
  static constexpr unsigned chunk = chunk_bytes / bytes;  // elements
  static constexpr unsigned tile_k = row_bytes / bytes;
  static constexpr unsigned pair = bytes == 2 ? 2 : 1;  // columns of a fragment that a lane has
  static constexpr unsigned lanes = 8 / pair;           // that share a row of a fragment
  static constexpr unsigned run = 4 * pair;             // 16 bytes of the result
  // Columns of the result in a tile, and of those a warp's.
  static constexpr unsigned out_columns = up ? tile_columns / 2 : tile_columns;
  static constexpr unsigned warp_out_columns = up ? warp_columns / 2 : warp_columns;
  static constexpr unsigned runs = warp_out_columns / 32;  // of a lane in a row

  // In units of 2 bytes, whatever the type.
  using TileA =
      kit::SharedTile<std::uint16_t, tile_rows, row_bytes / 2, kit::Major::k, kit::Swizzle::b64>;
  using TileB = std::conditional_t<
      major == kit::Major::k,
      kit::SharedTile<std::uint16_t, tile_columns, row_bytes / 2, kit::Major::k, kit::Swizzle::b64>,
      kit::SharedTile<std::uint16_t, tile_columns * bytes / 2, tile_k, kit::Major::mn,
                      kit::Swizzle::b128>>;

  // Whether the columns of a run are adjacent in memory. Weights with contiguous rows are put into
  // the tile in an order that makes them so. Of other weights, chunks of 16 bytes stay whole, which
  // is enough for f32 only.
  static constexpr bool wide = major == kit::Major::k || bytes == 4;
};

// What a column of the product is: a column of the result, counted from the warp's first, and, in
// the up-projection, whether of gate (0) or of up (1).
struct Column {
  unsigned half, column;
};

// Column `position` of fragment `f`, if runs are wide: of 32 columns, a lane has a run of adjacent
// ones, `pair` of them in each of four fragments.
template <class Config>
__device__ constexpr Column wide_column(unsigned f, unsigned position) {
  const unsigned in_run = position / Config::pair * Config::run + position % Config::pair;
  if (Config::up) return {f % 2, in_run + f / 2 * Config::pair};
  return {0, f / 4 * 32 + in_run + f % 4 * Config::pair};
}

// Shared storage
template <class Config>
struct Shared {
  alignas(1024) unsigned char a[depth][Config::TileA::bytes];
  alignas(1024) unsigned char b[depth][Config::TileB::bytes];
};

// The table of work items that the plan wrote.
struct Items {
  const std::uint64_t* words;
  const unsigned* count;
  unsigned* taken;
};

// Strides are in elements.
template <class Element>
struct Operands {
  const Element* a;  // x, whose rows are gathered, or h
  std::int64_t a_row;
  const unsigned* source;  // of x: t * K + k of each row
  kit::Divisor choices;    // K
  const Element* b;
  std::int64_t b_slot, b_row, b_column;
  const Element* bias;  // null: none
  std::int64_t bias_slot;
  Element* out;      // h or y, whose rows follow each other
  unsigned k;        // of the product: d or n
  unsigned columns;  // of out
  bool interleaved;  // gate and up
  MoeGate gate;
  Items items;
};

// The row of gate_up in which a column of gate (half 0) or of up is.
template <class Element>
__device__ inline unsigned gate_up_row(const Operands<Element>& operands, unsigned half,
                                       unsigned column) {
  return operands.interleaved ? 2 * column + half : half * operands.columns + column;
}

}  // namespace ps::detail::moe_portable
