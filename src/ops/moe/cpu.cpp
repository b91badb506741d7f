// The CPU's moe(): plan and combine. cpu_experts.cpp has the products.
#include "ops/moe/cpu.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ops/cpu_rows.h"
#include "ops/transform/half.h"
#include "penstock/base/checked.h"
#include "penstock/host/parallel.h"

namespace ps::mixture {
namespace {

using detail::MoeWork;
using detail::narrow_row;
using detail::widen_row;

// The expert of a pair, or -1 if it has none.
std::int64_t expert_of(const MoeWork& work, std::size_t pair) {
  if (work.ids == nullptr) return 0;
  const std::int64_t id = work.id_type == DType::i64
                              ? static_cast<const std::int64_t*>(work.ids)[pair]
                              : std::int64_t{static_cast<const std::int32_t*>(work.ids)[pair]};
  return id < work.experts ? std::max<std::int64_t>(id, -1) : -1;
}

float weight_of(const void* weights, DType type, std::size_t i) {
  if (type == DType::f32) return static_cast<const float*>(weights)[i];
  if (type == DType::f16) return detail::widen(static_cast<const detail::F16*>(weights)[i]);
  return detail::widen(static_cast<const detail::BF16*>(weights)[i]);
}

// Turns counts of pairs, (blocks, experts), into the row of each block's first pair of each expert,
// and writes the first row of every expert.
void add_counts(std::uint32_t* counts, std::size_t blocks, std::size_t experts,
                std::uint32_t* offsets) {
  std::uint32_t row = 0;
  for (std::size_t expert = 0; expert < experts; ++expert) {
    offsets[expert] = row;
    for (std::size_t block = 0; block < blocks; ++block) {
      std::uint32_t& count = counts[block * experts + expert];
      row += std::exchange(count, row);
    }
  }
  offsets[experts] = row;
}

// out[t] of one token.
void add_token(const MoeWork& work, std::size_t token) {
  constexpr std::size_t block = 512;
  const auto hidden = static_cast<std::size_t>(work.hidden);
  const auto choices = static_cast<std::size_t>(work.choices);
  const std::size_t element = size_of(work.type);
  const std::int32_t* rows = work.space.pair_rows(work.memory) + token * choices;
  const std::byte* y = work.space.y_rows(work.memory);
  const std::byte* shared_y = work.shared_space.y_rows(work.memory + work.space.bytes);
  auto* out = static_cast<std::byte*>(work.out) +
              static_cast<std::int64_t>(token) * work.out_row * static_cast<std::int64_t>(element);
  std::array<float, block> sum, values;
  for (std::size_t begin = 0; begin < hidden; begin += block) {
    const std::size_t count = std::min(block, hidden - begin);
    const auto add = [&](const std::byte* of, std::size_t row, float weight) {
      widen_row(of + (row * hidden + begin) * element, work.type, values.data(), count);
      for (std::size_t i = 0; i < count; ++i) sum[i] += weight * values[i];
    };
    sum.fill(0);
    for (std::size_t k = 0; k < choices; ++k) {
      if (rows[k] < 0) continue;
      const float weight = weight_of(work.weights, work.weight_type, token * choices + k);
      add(y, static_cast<std::size_t>(rows[k]), weight);
    }
    if (work.shared_width > 0) {
      add(shared_y, token,
          work.shared_weights == nullptr
              ? 1.F
              : weight_of(work.shared_weights, work.shared_weight_type, token));
    }
    narrow_row(sum.data(), work.type, out + begin * element, count);
  }
}

}  // namespace

// A stable counting sort. Each block of pairs is counted and placed by one thread.
void sort_pairs(const MoeWork& work, const Ranges& ranges) {
  const auto pairs = static_cast<std::size_t>(work.rows());
  const auto blocks = static_cast<std::size_t>(detail::moe_blocks(work.rows()));
  const auto experts = static_cast<std::size_t>(work.experts);
  const std::size_t each = ceil_div(pairs, blocks);
  std::uint32_t* counts = work.space.histogram_counts(work.memory);
  std::uint32_t* source = work.space.source_pairs(work.memory);
  std::int32_t* rows = work.space.pair_rows(work.memory);
  // Calls use(pair, count of its block and expert) for pairs with an expert.
  const auto for_pairs = [&](std::size_t block, const auto& use) {
    for (std::size_t i = block * each; i < std::min(pairs, (block + 1) * each); ++i) {
      const std::int64_t expert = expert_of(work, i);
      if (expert >= 0) use(i, counts[block * experts + static_cast<std::size_t>(expert)]);
    }
  };
  ranges(blocks, 1, [&](std::size_t begin, std::size_t end) {
    std::fill(counts + begin * experts, counts + end * experts, 0U);
    std::fill(rows + std::min(pairs, begin * each), rows + std::min(pairs, end * each), -1);
    for (std::size_t block = begin; block < end; ++block) {
      for_pairs(block, [](std::size_t, std::uint32_t& count) { ++count; });
    }
  });
  add_counts(counts, blocks, experts, work.space.expert_offsets(work.memory));
  ranges(blocks, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      for_pairs(block, [&](std::size_t pair, std::uint32_t& row) {
        source[row++] = static_cast<std::uint32_t>(pair);
      });
    }
  });
}

void add_up(const MoeWork& work, const Ranges& ranges) {
  constexpr std::int64_t grain = 64 * 1024;  // elements; fewer are not worth waking a thread for
  const auto tokens =
      static_cast<std::size_t>(std::max<std::int64_t>(1, grain / (work.hidden * work.choices)));
  ranges(static_cast<std::size_t>(work.tokens), tokens, [&](std::size_t begin, std::size_t end) {
    for (std::size_t token = begin; token < end; ++token) add_token(work, token);
  });
}

}  // namespace ps::mixture

namespace ps::detail {

void moe_plan_cpu(const MoeWork& work, const Stream& stream) {
  stream.call([work] { mixture::sort_pairs(work, parallel_ranges); });
}

void moe_experts_cpu(const MoeWork& work, const Stream& stream) {
  stream.call([work] { mixture::compute_experts(work, parallel_ranges); });
}

void moe_combine_cpu(const MoeWork& work, const Stream& stream) {
  stream.call([work] { mixture::add_up(work, parallel_ranges); });
}

}  // namespace ps::detail
