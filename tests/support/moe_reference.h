// The numbers of a call of moe(), and what the call should give: the formula, with sums in f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "support/elements.h"
#include "support/strided.h"

namespace ps::test {

struct MoeShape {
  std::int64_t tokens = 5, choices = 2, hidden = 16, width = 8, experts = 4;
  DType type = DType::bf16, id_type = DType::i32, weight_type = DType::f32;
};

// Each number is exactly one of its type.
struct MoeNumbers {
  MoeShape shape;
  std::vector<float> x;           // (T, d)
  std::vector<float> gate, up;    // (E, n, d)
  std::vector<float> down;        // (E, d, n)
  std::vector<std::int64_t> ids;  // (T, K)
  std::vector<float> weights;     // (T, K)

  MoeNumbers(const MoeShape& of, std::mt19937& random) : shape(of) {
    const auto normal = [&](std::int64_t count, double size) {
      std::normal_distribution<double> distribution(0, size);
      std::vector<float> numbers(static_cast<std::size_t>(count));
      for (float& each : numbers)
        each = static_cast<float>(rounded(distribution(random), shape.type));
      return numbers;
    };
    const double hidden_size = 1 / std::sqrt(static_cast<double>(shape.hidden));
    const double width_size = 1 / std::sqrt(static_cast<double>(shape.width));
    const std::int64_t matrix = shape.experts * shape.width * shape.hidden;
    x = normal(shape.tokens * shape.hidden, 1);
    gate = normal(matrix, hidden_size);
    up = normal(matrix, hidden_size);
    down = normal(matrix, width_size);
    for (std::int64_t i = 0; i < shape.tokens * shape.choices; ++i) {
      ids.push_back(static_cast<std::int64_t>(random()) % shape.experts);
      const double weight = static_cast<double>(random()) / 4294967296.0;
      weights.push_back(static_cast<float>(rounded(weight, shape.weight_type)));
    }
  }
};

struct MoeExpected {
  std::vector<double> out;  // (T, d)
  // Twice the largest error that rounding the input of the down-projection to the type of x makes,
  // and one rounding step of the largest result.
  double tolerance = 0;
};

namespace moe_reference {

// The dot product of two rows.
inline double dot(const float* a, const float* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}
inline double dot(const float* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace moe_reference

// `present`: which experts are there; empty: all of them.
inline MoeExpected expected(const MoeNumbers& numbers, const std::vector<bool>& present = {}) {
  using moe_reference::dot;
  const auto& [T, K, d, n, E, type, id_type, weight_type] = numbers.shape;
  MoeExpected result;
  result.out.resize(static_cast<std::size_t>(T * d));
  std::vector<double> h(static_cast<std::size_t>(n)), short_h(h), rounded_out(result.out);
  for (std::int64_t pair = 0; pair < T * K; ++pair) {
    const std::int64_t expert = numbers.ids[static_cast<std::size_t>(pair)], token = pair / K;
    if (expert < 0 || expert >= E) continue;
    if (!present.empty() && !present[static_cast<std::size_t>(expert)]) continue;
    const double weight = numbers.weights[static_cast<std::size_t>(pair)];
    const float* x = numbers.x.data() + token * d;
    for (std::int64_t i = 0; i < n; ++i) {
      const double gate = dot(numbers.gate.data() + (expert * n + i) * d, x, d);
      const double up = dot(numbers.up.data() + (expert * n + i) * d, x, d);
      const auto at = static_cast<std::size_t>(i);
      h[at] = gate / (1 + std::exp(-gate)) * up;
      short_h[at] = rounded(h[at], type);
    }
    for (std::int64_t i = 0; i < d; ++i) {
      const float* down = numbers.down.data() + (expert * d + i) * n;
      const auto at = static_cast<std::size_t>(token * d + i);
      result.out[at] += weight * dot(down, h.data(), n);
      rounded_out[at] += weight * dot(down, short_h.data(), n);
    }
  }
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < result.out.size(); ++i) {
    error = std::max(error, std::abs(rounded_out[i] - result.out[i]));
    largest = std::max(largest, std::abs(result.out[i]));
  }
  // In f32 the sums themselves are off by some rounding steps, too.
  const double steps = type == DType::f32 ? 32 : 1;
  result.tolerance = 2 * error + steps * spacing(largest, type);
  return result;
}

// "" if `out` is right in every element.
inline std::string wrong(const Strided& out, const MoeExpected& wanted) {
  for (std::int64_t i = 0; i < out.size(); ++i) {
    const std::vector<std::int64_t> at = out.index(i);
    const double found = decoded(static_cast<std::uint32_t>(out.bits(at)), out.type());
    const double should = wanted.out[static_cast<std::size_t>(i)];
    if (std::abs(found - should) <= wanted.tolerance) continue;  // never for NaN
    return "out[" + std::to_string(at[0]) + ", " + std::to_string(at[1]) + "] is " +
           std::to_string(found) + ", not " + std::to_string(should) + " within " +
           std::to_string(wanted.tolerance);
  }
  return "";
}

}  // namespace ps::test
