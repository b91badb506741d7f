// The experts' products on the CPU. A task is one block of rows and columns of one expert, so that
// every sum is computed by one thread, in the same order however the tasks are divided and whatever
// other rows there are. Neighbouring tasks have the same rows, which a thread prepares once, and
// columns that follow each other in memory.
#include <algorithm>
#include <array>
#include <vector>

#include "ops/cpu_product.h"
#include "ops/cpu_rows.h"
#include "ops/moe/cpu.h"
#include "ops/moe/cpu_activation.h"
#include "penstock/base/checked.h"

namespace ps::mixture {
namespace {

using detail::Columns;
using detail::MoeWeights;
using detail::MoeWork;
using detail::narrow_row;
using detail::widen_row;
using Block = detail::ProductBlock;

// Rows of an expert whose weights are there, at most as many as a block holds.
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
    if (slot < 0 || slot >= work.slot_count || end == first) continue;
    const std::size_t each = ceil_div(end - first, ceil_div(end - first, Block::most_rows));
    for (std::size_t row = first; row < end; row += each) {
      parts.push_back({slot, row, std::min(each, end - row)});
    }
  }
  return parts;
}

// Calls compute(block, part, number of the block of columns) for every block of columns of every
// part, with a block that has the rows of the part, which are at row_at(row).
template <class Row, class Compute>
void for_blocks(const std::vector<Part>& parts, std::size_t blocks, std::size_t depth, DType type,
                const Ranges& ranges, const Row& row_at, const Compute& compute) {
  ranges(parts.size() * blocks, 1, [&](std::size_t begin, std::size_t end) {
    Block block(type);
    std::array<const std::byte*, Block::most_rows> rows;
    for (std::size_t i = begin; i < end; ++i) {
      const Part& part = parts[i / blocks];
      if (i == begin || i % blocks == 0) {
        for (std::size_t r = 0; r < part.rows; ++r) rows[r] = row_at(part.first + r);
        block.set_rows({rows.data(), part.rows}, depth);
      }
      compute(block, part, i % blocks);
    }
  });
}

void add(const float* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
}

const std::byte* element_at(const void* array, std::int64_t index, DType type) {
  return static_cast<const std::byte*>(array) + index * static_cast<std::int64_t>(size_of(type));
}

// Where the rows of gate and of up are in gate_up.
struct GateUpRows {
  std::int64_t step = 1, up_first = 0;

  explicit GateUpRows(const MoeWork& work) {
    const bool interleaved = work.layout == GateUpLayout::interleaved;
    step = interleaved ? 2 : 1;
    up_first = interleaved ? 1 : work.width;
  }
  std::int64_t gate(std::size_t row) const { return static_cast<std::int64_t>(row) * step; }
  std::int64_t up(std::size_t row) const { return gate(row) + up_first; }
};

// h = act(gate x, up x)
void compute_h(const MoeWork& work, const std::vector<Part>& parts, const Ranges& ranges) {
  constexpr std::size_t each = Block::most_columns / 2;  // as many of gate, then of up
  const auto width = static_cast<std::size_t>(work.width);
  const auto hidden = static_cast<std::size_t>(work.hidden);
  const MoeWeights& held = work.held;
  const std::uint32_t* source = work.space.source_pairs(work.memory);
  std::byte* h = work.space.h_rows(work.memory);
  const auto x_of = [&](std::size_t row) {
    return element_at(work.x, source[row] / work.choices * work.x_row, work.type);
  };
  const GateUpRows rows(work);
  for_blocks(
      parts, ceil_div(width, each), hidden, work.type, ranges, x_of,
      [&](Block& block, const Part& part, std::size_t number) {
        const std::size_t begin = number * each, count = std::min(each, width - begin);
        const auto weights = [&](std::int64_t row) {
          return element_at(held.gate_up, part.slot * held.gate_up_slot + row * held.gate_up_row,
                            work.type);
        };
        std::array<const std::byte*, 2 * each> columns;
        std::array<float, 2 * each> bias{};
        for (std::size_t c = 0; c < count; ++c) {
          columns[c] = weights(rows.gate(begin + c));
          columns[count + c] = weights(rows.up(begin + c));
        }
        if (held.gate_up_bias != nullptr) {
          const auto bias_of = [&](std::int64_t row, float& to) {
            const std::int64_t at = part.slot * held.gate_up_bias_slot + row;
            widen_row(element_at(held.gate_up_bias, at, work.type), work.type, &to, 1);
          };
          for (std::size_t c = 0; c < count; ++c) {
            bias_of(rows.gate(begin + c), bias[c]);
            bias_of(rows.up(begin + c), bias[count + c]);
          }
        }
        block.multiply({.first = {columns.data(), 2 * count}, .stride = held.gate_up_column});
        for (std::size_t r = 0; r < part.rows; ++r) {
          float* sums = block.sums(r);
          if (held.gate_up_bias != nullptr) add(bias.data(), sums, 2 * count);
          activate_row(work.gate, sums, sums + count, sums, count);
          const std::size_t at = (part.first + r) * width + begin;
          narrow_row(sums, work.type, h + at * size_of(work.type), count);
        }
      });
}

// y = down h
void compute_y(const MoeWork& work, const std::vector<Part>& parts, const Ranges& ranges) {
  constexpr std::size_t each = Block::most_columns;
  const auto width = static_cast<std::size_t>(work.width);
  const auto hidden = static_cast<std::size_t>(work.hidden);
  const std::size_t element = size_of(work.type);
  const MoeWeights& held = work.held;
  const std::byte* h = work.space.h_rows(work.memory);
  std::byte* y = work.space.y_rows(work.memory);
  const auto h_of = [&](std::size_t row) { return h + row * width * element; };
  for_blocks(
      parts, ceil_div(hidden, each), width, work.type, ranges, h_of,
      [&](Block& block, const Part& part, std::size_t number) {
        const std::size_t begin = number * each, count = std::min(each, hidden - begin);
        std::array<const std::byte*, each> columns;
        for (std::size_t c = 0; c < count; ++c) {
          const auto row = static_cast<std::int64_t>(begin + c);
          columns[c] =
              element_at(held.down, part.slot * held.down_slot + row * held.down_row, work.type);
        }
        std::array<float, each> bias;
        if (held.down_bias != nullptr) {
          const std::int64_t at =
              part.slot * held.down_bias_slot + static_cast<std::int64_t>(begin);
          widen_row(element_at(held.down_bias, at, work.type), work.type, bias.data(), count);
        }
        block.multiply({.first = {columns.data(), count}, .stride = held.down_column});
        for (std::size_t r = 0; r < part.rows; ++r) {
          float* sums = block.sums(r);
          if (held.down_bias != nullptr) add(bias.data(), sums, count);
          narrow_row(sums, work.type, y + ((part.first + r) * hidden + begin) * element, count);
        }
      });
}

}  // namespace

void compute_experts(const MoeWork& work, const Ranges& ranges) {
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
