// The parts of moe()'s workspace. A row is one (token, choice) pair; rows are sorted by expert, and
// pairs of the same expert stay in the order t * K + k.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/kit/config.h"

namespace ps::detail {

// Pairs that one block counts and places, and the most blocks. With more than 64 * 1024 pairs every
// block gets more than 1024.
inline constexpr std::int64_t moe_count_pairs = 1024;
inline constexpr std::int64_t moe_count_blocks = 64;
// Rows before h and y that the ragged tensor store addresses and never writes.
inline constexpr std::int64_t moe_spare_rows = 16;
// Columns of a work item, in the output of its product: 256 rows of gate_up give 128 of h.
inline constexpr std::int64_t moe_item_columns = 256;
inline constexpr unsigned moe_unit_rows = 64;  // rows of an expert are padded to these

// Offsets in bytes, multiples of 256, and where the parts are in a workspace.
struct MoeWorkspace {
  std::size_t histograms = 0;  // u32 (count blocks, E)
  std::size_t counters = 0;    // u32: items of up and of down in the tables, how many were taken
                               // beyond the first of each block, and passes in their table
  std::size_t offsets = 0;     // u32 (E + 1): the first row of each expert
  std::size_t source = 0;      // u32 (T * K): the pair t * K + k of each row
  std::size_t place = 0;       // i32 (T * K): the row of each pair once its expert is computed, or
                               // -1
  std::size_t up_items = 0;    // MoeItem, as many as moe_most_tiles() times the columns
  std::size_t down_items = 0;
  std::size_t passes = 0;   // MoeItem, as many as moe_most_passes() and at least 32
  std::size_t h = 0;        // (T * K + 32, n), of which the first 16 rows and the last 16 are spare
  std::size_t y = 0;        // (T * K + 32, d), likewise
  std::size_t h_first = 0;  // row 0 of h, behind the spare rows
  std::size_t y_first = 0;
  std::size_t bytes = 0;

  PENSTOCK_HD std::uint32_t* histogram_counts(std::byte* memory) const {
    return reinterpret_cast<std::uint32_t*>(memory + histograms);
  }
  PENSTOCK_HD std::uint32_t* expert_offsets(std::byte* memory) const {
    return reinterpret_cast<std::uint32_t*>(memory + offsets);
  }
  PENSTOCK_HD std::uint32_t* source_pairs(std::byte* memory) const {
    return reinterpret_cast<std::uint32_t*>(memory + source);
  }
  PENSTOCK_HD std::int32_t* pair_rows(std::byte* memory) const {
    return reinterpret_cast<std::int32_t*>(memory + place);
  }
  // Row 0, which the rows that `source` and `place` count begin with; not the spare rows.
  PENSTOCK_HD std::byte* h_rows(std::byte* memory) const { return memory + h_first; }
  PENSTOCK_HD std::byte* y_rows(std::byte* memory) const { return memory + y_first; }
};

// The blocks that T * K pairs are counted in, each the same number of pairs but for the last.
constexpr std::int64_t moe_blocks(std::int64_t rows) {
  const std::int64_t blocks = (rows + moe_count_pairs - 1) / moe_count_pairs;
  return blocks < moe_count_blocks ? blocks : moe_count_blocks;
}

// The most tiles that T * K rows of E experts can have.
constexpr std::int64_t moe_most_tiles(std::int64_t rows, std::int64_t experts) {
  // All tiles of an expert but the last have at least 128 rows.
  const std::int64_t used = rows < experts ? rows : experts;
  return used + rows / (2 * moe_unit_rows);
}

// The most passes of T * K rows of E experts (passes.h). Up to 8 tokens of 16 choices may have
// passes of fewer than 64 rows.
constexpr std::int64_t moe_most_passes(std::int64_t rows, std::int64_t experts) {
  if (rows <= 8 * 16) return rows;
  const std::int64_t used = rows < experts ? rows : experts;
  return used + rows / 64;
}

constexpr std::int64_t moe_up_columns(std::int64_t width) {
  return (2 * width + moe_item_columns - 1) / moe_item_columns;
}
constexpr std::int64_t moe_down_columns(std::int64_t hidden) {
  return (hidden + moe_item_columns - 1) / moe_item_columns;
}

constexpr MoeWorkspace moe_workspace(std::int64_t rows, std::int64_t experts, std::int64_t hidden,
                                     std::int64_t width, std::size_t element) {
  MoeWorkspace space;
  std::size_t end = 0;
  const auto part = [&](std::int64_t count, std::size_t bytes) {
    const std::size_t begin = end;
    end += (static_cast<std::size_t>(count) * bytes + 255) / 256 * 256;
    return begin;
  };
  const std::int64_t tiles = moe_most_tiles(rows, experts);
  space.counters = part(64, 4);
  space.histograms = part(moe_blocks(rows) * experts, 4);
  space.offsets = part(experts + 1, 4);
  space.source = part(rows, 4);
  space.place = part(rows, 4);
  space.up_items = part(tiles * moe_up_columns(width), 8);
  space.down_items = part(tiles * moe_down_columns(hidden), 8);
  const std::int64_t passes = moe_most_passes(rows, experts);
  space.passes = part(passes < 32 ? 32 : passes, 8);
  space.h = part((rows + 2 * moe_spare_rows) * width, element);
  space.y = part((rows + 2 * moe_spare_rows) * hidden, element);
  const auto spare = static_cast<std::size_t>(moe_spare_rows) * element;
  space.h_first = space.h + spare * static_cast<std::size_t>(width);
  space.y_first = space.y + spare * static_cast<std::size_t>(hidden);
  space.bytes = end;
  return space;
}

}  // namespace ps::detail
