// Tiles of the portable attention in shared memory, and how a warp reads them: rows of q, keys and
// values, as they lie in memory, with the head dimension padded to that of the kernel.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/attention/work.h"
#include "penstock/kit/cp_async.cuh"
#include "penstock/kit/matrix.cuh"
#include "penstock/kit/tile.h"
#include "penstock/kit/warp.cuh"

namespace ps::detail::portable_attention {

// The shared memory that a block of threads may have on every GPU of compute capability 8.0 and
// later.
inline constexpr std::size_t least_shared_bytes = std::size_t{99} * 1024;

// Rows of a tensor from global memory.
template <class Element>
struct Rows {
  Element* data;
  std::int64_t stride;  // elements
  unsigned count;       // rows that are there
  unsigned columns;     // elements of a row that are there, a multiple of 8

  __device__ Element* at(unsigned row) const {
    return data + static_cast<std::int64_t>(row) * stride;
  }
};

// Keys or values of one head of a sequence, which may be in pages.
template <class Element>
struct KeyRows {
  Rows<Element> rows;  // of a sequence in pages: those of page 0, and the count of the sequence
  const AttentionPages& pages;
  std::int64_t page_stride;      // elements
  std::int32_t sequence, begin;  // the row of the sequence that is row 0 here
};

template <class Element, unsigned rows_, unsigned columns_>
struct RowTile : kit::SharedTile<Element, rows_, columns_, kit::Major::k,
                                 columns_ % 64 == 0 ? kit::Swizzle::b128 : kit::Swizzle::b64> {
  using Tile = kit::SharedTile<Element, rows_, columns_, kit::Major::k,
                               columns_ % 64 == 0 ? kit::Swizzle::b128 : kit::Swizzle::b64>;
  static constexpr unsigned chunks = columns_ / 8;  // of 16 bytes, per row

  // A block of `threads` threads copies rows [first, first + rows_), with zeros for rows and
  // columns that are not there, whose addresses are not read. In one turn it copies some rows of
  // one panel, so that a thread's addresses differ by constants from turn to turn.
  template <unsigned threads>
  __device__ static void load(unsigned char* to, const Rows<const Element>& from, unsigned first) {
    constexpr unsigned across = Tile::span_bytes / 16, down = threads / across;
    static_assert(down % 8 == 0 && rows_ % down == 0, "turns of whole swizzle patterns");
    const unsigned row = threadIdx.x / across, column = threadIdx.x % across * 8;
    unsigned char* const to_first = to + Tile::offset(row, column);
    const Element* from_row = from.at(first + row) + column;
#pragma unroll
    for (unsigned turn = 0; turn < rows_ / down; ++turn) {
      const bool has_row = first + row + turn * down < from.count;
#pragma unroll
      for (unsigned panel = 0; panel < Tile::panels; ++panel) {
        const bool there = has_row && column + panel * Tile::span_elements < from.columns;
        kit::cp_async<16>(to_first + turn * down * Tile::span_bytes + panel * Tile::panel_bytes,
                          from_row + panel * Tile::span_elements, there ? 16 : 0);
      }
      from_row += down * from.stride;
    }
  }

  // The same for keys and values. Rows on pages that do not exist are zeros.
  template <unsigned threads>
  __device__ static void load(unsigned char* to, const KeyRows<const Element>& from,
                              unsigned first) {
    if (from.pages.table == nullptr) return load<threads>(to, from.rows, first);
    constexpr unsigned across = Tile::span_bytes / 16, down = threads / across;
    const unsigned row = threadIdx.x / across, column = threadIdx.x % across * 8;
    unsigned char* const to_first = to + Tile::offset(row, column);
#pragma unroll
    for (unsigned turn = 0; turn < rows_ / down; ++turn) {
      const unsigned at = first + row + turn * down;
      AttentionPlace place{0, 0, false};
      if (at < from.rows.count) {
        place = from.pages(from.sequence, from.begin + static_cast<std::int32_t>(at));
      }
      const Element* const from_row =
          from.rows.data + place.batch * from.page_stride + place.row * from.rows.stride + column;
#pragma unroll
      for (unsigned panel = 0; panel < Tile::panels; ++panel) {
        const bool there = place.there && column + panel * Tile::span_elements < from.rows.columns;
        kit::cp_async<16>(to_first + turn * down * Tile::span_bytes + panel * Tile::panel_bytes,
                          from_row + panel * Tile::span_elements, there ? 16 : 0);
      }
    }
  }

  // 16 rows of one panel.
  static constexpr unsigned tile_bytes = 16 * Tile::span_bytes;

  // Where a lane finds its row of 8 x 8 elements, for ldmatrix: four matrices are a tile of 16 x
  // 16, first the upper left one, then the lower left, the upper right and the lower right. The
  // same for q, keys and values, so that a lane keeps one set of offsets.
  class Address {
   public:
    __device__ Address()
        : first_(Tile::offset(kit::lane_index() % 16, kit::lane_index() / 16 * 8)) {}

    // Of the tile of 16 x 16 that begins at 16 * down and 16 * across. The swizzle XORs the index
    // of a chunk with that of its line, so other columns of a panel are an XOR away.
    __device__ unsigned operator()(unsigned down, unsigned across) const {
      constexpr unsigned each = Tile::span_elements / 16;  // tiles in a panel
      return (first_ ^ (across % each * 32)) + across / each * Tile::panel_bytes +
             down * tile_bytes;
    }

   private:
    unsigned first_;
  };
};

}  // namespace ps::detail::portable_attention
