// The experts' products on the CPU. A task is one block of columns of one expert, so that every sum
// is computed by one thread, in the same order however the tasks are divided and whatever other
// rows there are.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "ops/cpu_product.h"
#include "ops/cpu_rows.h"
#include "ops/moe/cpu.h"
#include "penstock/base/checked.h"

namespace ps::mixture {
namespace {

using detail::MoeWork;
using detail::narrow_row;
using detail::RowPointers;
using detail::swiglu_row;
using Block = detail::ProductBlock;

// The rows of an expert whose weights are there.
struct Part {
  std::int64_t slot = 0;
  std::size_t first = 0, rows = 0;
};

std::vector<Part> present_parts(const MoeWork& work) {
  const std::uint32_t* offsets = work.space.expert_offsets(work.memory);
  std::vector<Part> parts;
  for (std::int64_t expert = 0; expert < work.experts; ++expert) {
    const std::int64_t slot = work.slots == nullptr ? expert : work.slots[expert];
    const std::size_t first = offsets[expert], end = offsets[expert + 1];
    if (slot >= 0 && slot < work.slot_count && end > first) {
      parts.push_back({slot, first, end - first});
    }
  }
  return parts;
}

// Calls compute(block, part, number of the block of columns) for every block of every part.
template <class Compute>
void for_blocks(const std::vector<Part>& parts, std::size_t blocks, Ranges ranges,
                const Compute& compute) {
  ranges(parts.size() * blocks, 1, [&](std::size_t begin, std::size_t end) {
    const auto block = std::make_unique<Block>();
    for (std::size_t i = begin; i < end; ++i) compute(*block, parts[i / blocks], i % blocks);
  });
}

// Multiplies rows of a part, as many as a block holds at a time, with the same columns: finish()
// gets the first row and the number of rows whose sums the block then has.
template <class Row, class Finish>
void for_rows(Block& block, const Part& part, RowPointers columns, std::size_t depth, DType type,
              const Row& row_at, const Finish& finish) {
  std::array<const std::byte*, Block::most_rows> rows;
  for (std::size_t begin = 0; begin < part.rows; begin += rows.size()) {
    const std::size_t first = part.first + begin;
    const std::size_t count = std::min(rows.size(), part.rows - begin);
    for (std::size_t r = 0; r < count; ++r) rows[r] = row_at(first + r);
    block.multiply({rows.data(), count}, columns, depth, type);
    finish(first, count);
  }
}

// h = silu(gate x) * (up x)
void compute_h(const MoeWork& work, const std::vector<Part>& parts, Ranges ranges) {
  constexpr std::size_t each = Block::most_columns / 2;  // as many of gate, then of up
  const auto width = static_cast<std::size_t>(work.width);
  const auto hidden = static_cast<std::size_t>(work.hidden);
  const auto element = static_cast<std::int64_t>(size_of(work.type));
  const std::uint32_t* source = work.space.source_pairs(work.memory);
  const auto x_of = [&](std::size_t row) {
    const std::int64_t token = source[row] / work.choices;
    return static_cast<const std::byte*>(work.x) + token * work.x_row * element;
  };
  const bool interleaved = work.layout == GateUpLayout::interleaved;
  const std::int64_t gate_step = interleaved ? 2 : 1, up_first = interleaved ? 1 : work.width;
  for_blocks(
      parts, ceil_div(width, each), ranges,
      [&](Block& block, const Part& part, std::size_t number) {
        const std::size_t begin = number * each, count = std::min(each, width - begin);
        std::array<const std::byte*, 2 * each> columns;
        for (std::size_t c = 0; c < count; ++c) {
          const auto gate = static_cast<std::int64_t>(begin + c) * gate_step;
          const auto weights = [&](std::int64_t row) {
            return static_cast<const std::byte*>(work.held.gate_up) +
                   (part.slot * work.held.gate_up_slot + row * work.held.gate_up_row) * element;
          };
          columns[c] = weights(gate);
          columns[count + c] = weights(gate + up_first);
        }
        for_rows(block, part, {columns.data(), 2 * count}, hidden, work.type, x_of,
                 [&](std::size_t first, std::size_t rows) {
                   for (std::size_t r = 0; r < rows; ++r) {
                     float h[each];
                     swiglu_row(block.sums(r), block.sums(r) + count, h, count);
                     const std::size_t at = (first + r) * width + begin;
                     narrow_row(h, work.type,
                                work.space.h_rows(work.memory) + at * size_of(work.type), count);
                   }
                 });
      });
}

// y = down h
void compute_y(const MoeWork& work, const std::vector<Part>& parts, Ranges ranges) {
  constexpr std::size_t each = Block::most_columns;
  const auto width = static_cast<std::size_t>(work.width);
  const auto hidden = static_cast<std::size_t>(work.hidden);
  const std::size_t element = size_of(work.type);
  const std::byte* h = work.space.h_rows(work.memory);
  std::byte* y = work.space.y_rows(work.memory);
  const auto h_of = [&](std::size_t row) { return h + row * width * element; };
  for_blocks(parts, ceil_div(hidden, each), ranges,
             [&](Block& block, const Part& part, std::size_t number) {
               const std::size_t begin = number * each, count = std::min(each, hidden - begin);
               std::array<const std::byte*, each> columns;
               for (std::size_t c = 0; c < count; ++c) {
                 const auto row = static_cast<std::int64_t>(begin + c);
                 columns[c] = static_cast<const std::byte*>(work.held.down) +
                              (part.slot * work.held.down_slot + row * work.held.down_row) *
                                  static_cast<std::int64_t>(element);
               }
               for_rows(block, part, {columns.data(), count}, width, work.type, h_of,
                        [&](std::size_t first, std::size_t rows) {
                          for (std::size_t r = 0; r < rows; ++r) {
                            narrow_row(block.sums(r), work.type,
                                       y + ((first + r) * hidden + begin) * element, count);
                          }
                        });
             });
}

}  // namespace

void compute_experts(const MoeWork& work, Ranges ranges) {
  const std::vector<Part> parts = present_parts(work);
  const std::uint32_t* source = work.space.source_pairs(work.memory);
  std::int32_t* rows = work.space.pair_rows(work.memory);
  for (const Part& part : parts) {
    for (std::size_t row = part.first; row < part.first + part.rows; ++row) {
      rows[source[row]] = static_cast<std::int32_t>(row);
    }
  }
  compute_h(work, parts, ranges);
  compute_y(work, parts, ranges);
}

}  // namespace ps::mixture
