// How the kernel `decode` shares out its work. A pass over an expert's weights serves a few of its
// rows, so that an expert with few rows needs one pass and its weights are read once. The weight
// rows of a pass are cut into units of 16; blocks get runs of units that differ by at most one
// unit. Made on the device; the same code runs in host tests.
#pragma once

#include <cstdint>

#include "ops/moe/items.h"
#include "penstock/kit/config.h"

namespace ps::detail {

// The most rows of a pass. Calls of few tokens have low passes, which leave more shared memory to
// weights in flight.
inline constexpr unsigned moe_pass_rows = 64, moe_low_pass_rows = 8;
constexpr unsigned moe_rows_per_pass(std::int64_t tokens) {
  return tokens <= std::int64_t{moe_low_pass_rows} ? moe_low_pass_rows : moe_pass_rows;
}

// Weight rows of a unit: of the up-projection eight of gate and the eight of up that belong to
// them. Weights whose columns are contiguous have larger units.
inline constexpr unsigned moe_weight_rows = 16;

// The number of passes of an expert with this many rows.
PENSTOCK_HD constexpr unsigned moe_passes(unsigned rows, unsigned rows_per_pass) {
  return (rows + rows_per_pass - 1) / rows_per_pass;
}

// Pass `index` of an expert, as an item without a column.
PENSTOCK_HD constexpr MoeItem moe_pass(unsigned index, unsigned rows, unsigned rows_per_pass,
                                       unsigned slot, unsigned first_row) {
  const unsigned first = index * rows_per_pass;
  const unsigned left = rows - first;
  return {slot, first_row + first, left < rows_per_pass ? left : rows_per_pass, 0};
}

// Which of the kernels `large` and `decode` computes the products of a call.
enum class MoePath : std::uint8_t {
  large,
  decode,
  by_counts,  // moe_decodes() of all experts' rows, which only the device knows
};

// With few rows per expert both kernels are bound by reading the weights, and `decode` reads them
// faster; with more rows its products take longer than the read. On an H200 the lines cross between
// 16 and 32 rows per expert. So `decode` is taken if the experts' rows make at most 5/4 shares of
// this size per expert that has rows.
inline constexpr unsigned moe_share_rows = 24;
PENSTOCK_HD constexpr bool moe_decodes(std::uint64_t shares, std::uint64_t experts_with_rows) {
  return 4 * shares <= 5 * experts_with_rows;
}

// The choice for T tokens of K choices among E experts, as far as the numbers determine it. If no
// token has an expert twice, at most T rows go to one expert.
constexpr MoePath moe_path(std::int64_t tokens, std::int64_t choices, std::int64_t experts) {
  if (tokens <= std::int64_t{moe_pass_rows}) return MoePath::decode;
  const std::int64_t fewest = (tokens * choices + moe_share_rows - 1) / moe_share_rows;
  const bool never =
      !moe_decodes(static_cast<std::uint64_t>(fewest), static_cast<std::uint64_t>(experts));
  return never ? MoePath::large : MoePath::by_counts;
}

// Weight rows of a pass that a block computes together.
struct MoePart {
  unsigned pass = 0;
  unsigned unit = 0;   // the first
  unsigned units = 0;  // 1 or more
};

// The units of one block: all units of all passes, in order, are cut into one run per block.
class MoeRun {
 public:
  PENSTOCK_HD constexpr MoeRun(unsigned passes, unsigned units, unsigned block, unsigned blocks)
      : units_(units) {
    const std::uint64_t all = std::uint64_t{passes} * units;
    const std::uint64_t each = all / blocks, more = all % blocks;  // the first ones have one more
    const std::uint64_t begin = each * block + (block < more ? block : more);
    left_ = each + (block < more ? 1 : 0);
    pass_ = static_cast<unsigned>(begin / units);
    unit_ = static_cast<unsigned>(begin % units);
  }

  // The next part, of at most `most` units; the parts of a pass have nearly equal length. False if
  // there is none.
  PENSTOCK_HD constexpr bool next(MoePart& part, unsigned most) {
    if (left_ == 0) return false;
    const unsigned rest = units_ - unit_;
    const unsigned here = left_ < rest ? static_cast<unsigned>(left_) : rest;
    const unsigned parts = (here + most - 1) / most;
    part = {pass_, unit_, (here + parts - 1) / parts};
    left_ -= part.units;
    unit_ += part.units;
    if (unit_ == units_) {
      unit_ = 0;
      ++pass_;
    }
    return true;
  }

 private:
  unsigned units_;  // of a pass
  std::uint64_t left_ = 0;
  unsigned pass_ = 0, unit_ = 0;
};

}  // namespace ps::detail
