// What attention() computes on the CPU for a tile of rows and a block of keys, by instruction set.
#pragma once

#include <cstddef>

namespace ps::detail {

// How products become scores.
struct AttentionScores {
  float scale = 1, softcap = 0;
};

// The state of a row of out: the largest score so far, and the sum of exp(score - maximum).
struct AttentionRow {
  float maximum, sum;
};

struct AttentionRows {
  // The columns of values and results are padded to a multiple of these.
  static constexpr std::size_t column_multiple = 16;

  // Replaces the products of keys [begin, end) of a block by exp(score - maximum), and those of all
  // other keys up to the next multiple of 16 keys after `count` by 0. Updates the row. Returns the
  // factor for what was computed with the previous maximum.
  float (*softmax)(float* products, std::size_t begin, std::size_t end, std::size_t count,
                   const AttentionScores& scores, AttentionRow& row);

  // out[r] = factor[r] * out[r] + sum over keys of p[r][key] * v[key]
  void (*accumulate)(const float* p, std::size_t p_stride, const float* v, std::size_t v_stride,
                     const float* factor, std::size_t rows, std::size_t keys, std::size_t columns,
                     float* out, std::size_t out_stride);
};

// Null where the compiler lacks the instructions. The caller makes sure that the CPU has them.
const AttentionRows* attention_rows_avx2();
const AttentionRows* attention_rows_avx512();
const AttentionRows* attention_rows_baseline();

}  // namespace ps::detail
