// AttentionRows in vectors. Files include this after they have chosen their instructions, and give
// it Lanes of an anonymous namespace, so that what is compiled for them stays theirs:
//
//   Vector, lanes               a vector of f32, and its elements
//   Bits                        a vector of as many 32-bit integers
//   rows, vectors               a tile of results that fits into registers
//   load, store, all(x), fma(a, b, c)
//   greater(a, b), less(a, b)   the greater or the smaller one, and b if one is NaN
#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>

#include "ops/attention/cpu.h"

namespace ps::detail {

template <class Lanes>
class VectorRows {
 public:
  static constexpr AttentionRows functions() { return {softmax, accumulate}; }

 private:
  using Vector = typename Lanes::Vector;
  using Bits = typename Lanes::Bits;
  static constexpr std::size_t lanes = Lanes::lanes;

  // For x up to 88; 0 for x below -87.6; NaN for NaN.
  static Vector exp(Vector x) {
    x = Lanes::greater(Lanes::all(-87.9F), x);
    // Adding 1.5 * 2^23 leaves the nearest integer, and 127 the biased exponent, in the last bits.
    constexpr float shift = 12582912.F + 127.F;
    const Vector shifted =
        Lanes::fma(x, Lanes::all(std::numbers::log2e_v<float>), Lanes::all(shift));
    const Vector n = shifted - Lanes::all(shift);
    // Subtracts n * ln 2 in two steps, so that the difference is nearly exact.
    // NOLINTNEXTLINE(modernize-use-std-numbers)
    Vector r = Lanes::fma(n, Lanes::all(-0.693359375F), x);
    r = Lanes::fma(n, Lanes::all(2.12194440e-4F), r);
    Vector p = Lanes::all(1.9875691500e-4F);
    p = Lanes::fma(p, r, Lanes::all(1.3981999507e-3F));
    p = Lanes::fma(p, r, Lanes::all(8.3334519073e-3F));
    p = Lanes::fma(p, r, Lanes::all(4.1665795894e-2F));
    p = Lanes::fma(p, r, Lanes::all(1.6666665459e-1F));
    p = Lanes::fma(p, r, Lanes::all(5.0000001201e-1F));
    p = Lanes::fma(p, r * r, r) + Lanes::all(1.F);
    const Bits exponent = reinterpret_cast<Bits>(shifted) << 23;
    return p * reinterpret_cast<Vector>(exponent);
  }

  static Vector tanh(Vector x) {
    const Vector power = exp(Lanes::less(Lanes::all(87.F), x + x));
    return Lanes::all(1.F) - Lanes::all(2.F) / (power + Lanes::all(1.F));
  }

  template <class Combine>
  static float combined(Vector vector, const Combine& combine) {
    float each[lanes];
    Lanes::store(each, vector);
    float result = each[0];
    for (std::size_t i = 1; i < lanes; ++i) result = combine(result, each[i]);
    return result;
  }

  static void score(float* products, std::size_t count, const AttentionScores& scores) {
    if (scores.softcap == 0) {
      for (std::size_t i = 0; i < count; i += lanes) {
        Lanes::store(products + i, Lanes::load(products + i) * Lanes::all(scores.scale));
      }
      return;
    }
    const Vector inside = Lanes::all(scores.scale / scores.softcap);
    for (std::size_t i = 0; i < count; i += lanes) {
      const Vector capped = tanh(Lanes::load(products + i) * inside);
      Lanes::store(products + i, capped * Lanes::all(scores.softcap));
    }
  }

  static float softmax(float* products, std::size_t begin, std::size_t end, std::size_t count,
                       const AttentionScores& scores, AttentionRow& row) {
    constexpr std::size_t multiple = AttentionRows::column_multiple;
    count = (count + multiple - 1) / multiple * multiple;
    score(products, count, scores);
    for (std::size_t i = 0; i < begin; ++i) products[i] = -INFINITY;
    for (std::size_t i = end; i < count; ++i) products[i] = -INFINITY;

    Vector maximum = Lanes::all(row.maximum);
    for (std::size_t i = 0; i < count; i += lanes) {
      maximum = Lanes::greater(Lanes::load(products + i), maximum);
    }
    const float before = row.maximum;
    row.maximum = combined(maximum, [](float a, float b) { return a > b ? a : b; });
    // Without a key so far, all differences below are -infinity.
    const float from = row.maximum == -INFINITY ? 0 : row.maximum;
    Vector sum = Lanes::all(0);
    for (std::size_t i = 0; i < count; i += lanes) {
      const Vector p = exp(Lanes::load(products + i) - Lanes::all(from));
      Lanes::store(products + i, p);
      sum = sum + p;
    }
    const float factor = before == row.maximum ? 1.F : std::exp(before - from);
    row.sum = row.sum * factor + combined(sum, [](float a, float b) { return a + b; });
    return factor;
  }

  template <std::size_t rows, std::size_t vectors>
  static void tile(const float* p, std::size_t p_stride, const float* v, std::size_t v_stride,
                   const float* factor, std::size_t keys, float* out, std::size_t out_stride) {
    Vector sum[rows][vectors];
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < vectors; ++c) {
        sum[r][c] = Lanes::load(out + r * out_stride + c * lanes) * Lanes::all(factor[r]);
      }
    }
    for (std::size_t key = 0; key < keys; ++key, v += v_stride) {
      Vector value[vectors];
      for (std::size_t c = 0; c < vectors; ++c) value[c] = Lanes::load(v + c * lanes);
      for (std::size_t r = 0; r < rows; ++r) {
        const Vector weight = Lanes::all(p[r * p_stride + key]);
        for (std::size_t c = 0; c < vectors; ++c) {
          sum[r][c] = Lanes::fma(weight, value[c], sum[r][c]);
        }
      }
    }
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < vectors; ++c) {
        Lanes::store(out + r * out_stride + c * lanes, sum[r][c]);
      }
    }
  }

  template <std::size_t vectors>
  static void all_rows(const float* p, std::size_t p_stride, const float* v, std::size_t v_stride,
                       const float* factor, std::size_t rows, std::size_t keys, float* out,
                       std::size_t out_stride) {
    std::size_t r = 0;
    for (; r + Lanes::rows <= rows; r += Lanes::rows) {
      tile<Lanes::rows, vectors>(p + r * p_stride, p_stride, v, v_stride, factor + r, keys,
                                 out + r * out_stride, out_stride);
    }
    for (; r < rows; ++r) {
      tile<1, vectors>(p + r * p_stride, p_stride, v, v_stride, factor + r, keys,
                       out + r * out_stride, out_stride);
    }
  }

  static void accumulate(const float* p, std::size_t p_stride, const float* v, std::size_t v_stride,
                         const float* factor, std::size_t rows, std::size_t keys,
                         std::size_t columns, float* out, std::size_t out_stride) {
    std::size_t c = 0;
    for (; c + Lanes::vectors * lanes <= columns; c += Lanes::vectors * lanes) {
      all_rows<Lanes::vectors>(p, p_stride, v + c, v_stride, factor, rows, keys, out + c,
                               out_stride);
    }
    for (; c < columns; c += lanes) {
      all_rows<1>(p, p_stride, v + c, v_stride, factor, rows, keys, out + c, out_stride);
    }
  }
};

}  // namespace ps::detail
