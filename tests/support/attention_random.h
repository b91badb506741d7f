// Calls of attention() of random shapes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "penstock/base/dtype.h"
#include "support/attention_call.h"

namespace ps::test {

struct AttentionDims {
  std::int64_t dim = 0, dim_v = 0;
};

// Those for which there are kernels for Hopper.
inline const std::vector<AttentionDims> fast_attention_dims{
    {64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};

// A call of random shape, masks, lengths and layout that fits the rules of GPUs, too.
inline AttentionCase random_attention_case(std::uint32_t seed, std::int64_t most_rows,
                                           const std::vector<AttentionDims>& dims,
                                           const std::vector<DType>& types) {
  std::mt19937 random(seed);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % n); };
  const auto lengths = [&](std::int64_t count) {
    std::vector<std::int32_t> ends{static_cast<std::int32_t>(below(3))};
    for (std::int64_t b = 0; b < count; ++b) {
      const std::int64_t length = below(5) == 0 ? 0 : below(most_rows);
      ends.push_back(ends.back() + static_cast<std::int32_t>(length));
    }
    return ends;
  };
  const AttentionDims dim =
      dims[static_cast<std::size_t>(below(static_cast<std::int64_t>(dims.size())))];
  AttentionCase made{
      .sequences = 1 + below(3),
      .q_rows = 1 + below(most_rows),
      .k_rows = 1 + below(most_rows),
      .heads_k = 1 + below(2),
      .dim = dim.dim,
      .dim_v = dim.dim_v,
      .type = types[static_cast<std::size_t>(below(static_cast<std::int64_t>(types.size())))],
      .causal = below(2) == 0,
      .softcap = below(4) == 0 ? 2.F + static_cast<float>(below(20)) : 0.F,
      .scale = below(4) == 0 ? 0.3F : 0.F,
      .sinks = below(3) == 0,
      .lse = below(4) != 0,
      .heads_first = below(2) == 0,
      .padding = 8 * below(3)};
  made.heads_q = made.heads_k * (1 + below(4));
  made.sink_type =
      std::array{DType::f32, DType::bf16, DType::f16}[static_cast<std::size_t>(below(3))];
  if (below(3) == 0) made.window_left = below(most_rows);
  if (below(4) == 0) made.window_right = below(most_rows / 2);
  if (below(3) == 0) {
    made.cu_q = lengths(made.sequences);
    made.q_rows = made.cu_q.back() + below(3);
  }
  if (below(3) == 0) {
    made.cu_k = lengths(made.sequences);
    made.k_rows = made.cu_k.back() + below(3);
  }
  const bool ends = below(3) == 0, begins = below(3) == 0;
  for (std::int64_t b = 0; b < made.sequences; ++b) {
    const auto i = static_cast<std::size_t>(b);
    std::int64_t rows = made.cu_k.empty() ? made.k_rows : made.cu_k[i + 1] - made.cu_k[i];
    if (ends) made.lengths_k.push_back(static_cast<std::int32_t>(rows = below(rows + 1)));
    if (begins) made.first_k.push_back(static_cast<std::int32_t>(below(rows + 1)));
  }
  return made;
}

// The same with k and v in pages, of which `page_rows` names the possible sizes.
inline AttentionCase random_paged_case(std::uint32_t seed, std::int64_t most_rows,
                                       const std::vector<AttentionDims>& dims,
                                       const std::vector<DType>& types,
                                       const std::vector<std::int64_t>& page_rows) {
  AttentionCase made = random_attention_case(seed, most_rows, dims, types);
  std::mt19937 random(seed);
  made.cu_k.clear();
  made.first_k.clear();
  made.lengths_k.clear();
  if (!made.cu_q.empty()) made.sequences = static_cast<std::int64_t>(made.cu_q.size()) - 1;
  made.page_rows = page_rows[random() % page_rows.size()];
  made.k_rows = 1 + static_cast<std::int64_t>(random()) % most_rows;
  made.bad_pages = random() % 4 == 0;
  const bool begins = random() % 4 == 0;
  for (std::int64_t b = 0; b < made.sequences; ++b) {
    made.lengths_k.push_back(static_cast<std::int32_t>(random() % (made.k_rows + 1)));
    if (!begins) continue;
    const auto most = static_cast<std::uint32_t>(made.lengths_k.back()) + 1;
    made.first_k.push_back(static_cast<std::int32_t>(random() % most));
  }
  return made;
}

}  // namespace ps::test
