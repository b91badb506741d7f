// The numbers of a call of moe(), and what the call should give: the formula, with sums in f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "penstock/ops/moe.h"
#include "support/elements.h"
#include "support/strided.h"

namespace ps::test {

struct MoeShape {
  std::int64_t tokens = 5, choices = 2, hidden = 16, width = 8, experts = 4;
  DType type = DType::bf16, id_type = DType::i32, weight_type = DType::f32;
  bool gate_up_bias = false, down_bias = false;
  MoeActivation activation = MoeActivation::swiglu;
  float alpha = 1.702F, limit = 7.F;
  std::int64_t shared_width = 0;  // m; 0: no shared expert
  bool shared_weighted = false;   // whether it has weights
  DType shared_weight_type = DType::f32;
};

// Each number is exactly one of its type.
struct MoeNumbers {
  MoeShape shape;
  std::vector<float> x;           // (T, d)
  std::vector<float> gate, up;    // (E, n, d)
  std::vector<float> down;        // (E, d, n)
  std::vector<std::int64_t> ids;  // (T, K)
  std::vector<float> weights;     // (T, K)

  std::vector<float> gate_bias, up_bias;      // (E, n), or none
  std::vector<float> down_bias;               // (E, d), or none
  std::vector<float> shared_gate, shared_up;  // (m, d)
  std::vector<float> shared_down;             // (d, m)
  std::vector<float> shared_weights;          // (T), or none

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
      weights.push_back(share(shape.weight_type, random));
    }
    if (shape.gate_up_bias) {
      gate_bias = normal(shape.experts * shape.width, 0.5);
      up_bias = normal(shape.experts * shape.width, 0.5);
    }
    if (shape.down_bias) down_bias = normal(shape.experts * shape.hidden, 0.5);
    if (shape.shared_width == 0) return;
    const std::int64_t shared = shape.shared_width * shape.hidden;
    shared_gate = normal(shared, hidden_size);
    shared_up = normal(shared, hidden_size);
    shared_down = normal(shared, 1 / std::sqrt(static_cast<double>(shape.shared_width)));
    for (std::int64_t t = 0; shape.shared_weighted && t < shape.tokens; ++t) {
      shared_weights.push_back(share(shape.shared_weight_type, random));
    }
  }

 private:
  static float share(DType type, std::mt19937& random) {
    return static_cast<float>(rounded(static_cast<double>(random()) / 4294967296.0, type));
  }
};

struct MoeExpected {
  std::vector<double> out;  // (T, d)
  // Twice the largest error that rounding the input of the down-projection and its result to the
  // type of x makes, and one rounding step of the largest result.
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

inline double activated(const MoeShape& shape, double gate, double up) {
  switch (shape.activation) {
    case MoeActivation::swiglu:
      return gate / (1 + std::exp(-gate)) * up;
    case MoeActivation::geglu:
      return gate / 2 * (1 + std::erf(gate / std::sqrt(2.0))) * up;
    case MoeActivation::geglu_tanh:
      return gate / 2 *
             (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
    case MoeActivation::clamped_swiglu:
      break;
  }
  const double limit = shape.limit;
  const double g = std::min(gate, limit), u = std::clamp(up, -limit, limit);
  return g / (1 + std::exp(-shape.alpha * g)) * (u + 1);
}

// One expert. Null: no bias.
struct Expert {
  std::int64_t width;
  const float *gate, *up, *down;
  const float *gate_bias, *up_bias, *down_bias;
};

inline Expert expert_of(const MoeNumbers& numbers, std::int64_t expert) {
  const std::int64_t n = numbers.shape.width, d = numbers.shape.hidden;
  const auto at = [&](const std::vector<float>& all, std::int64_t each) {
    return all.empty() ? nullptr : all.data() + expert * each;
  };
  return {.width = n,
          .gate = at(numbers.gate, n * d),
          .up = at(numbers.up, n * d),
          .down = at(numbers.down, d * n),
          .gate_bias = at(numbers.gate_bias, n),
          .up_bias = at(numbers.up_bias, n),
          .down_bias = at(numbers.down_bias, d)};
}

inline Expert shared_expert_of(const MoeNumbers& numbers) {
  return {.width = numbers.shape.shared_width,
          .gate = numbers.shared_gate.data(),
          .up = numbers.shared_up.data(),
          .down = numbers.shared_down.data(),
          .gate_bias = nullptr,
          .up_bias = nullptr,
          .down_bias = nullptr};
}

// Adds weight times the expert's result for x to `out`, and the same with h and the result rounded
// to the type of x to `rounded_out`.
inline void add_expert(const MoeShape& shape, const Expert& expert, const float* x, double weight,
                       double* out, double* rounded_out) {
  const std::int64_t d = shape.hidden, n = expert.width;
  const auto bias = [](const float* all, std::int64_t i) {
    return all == nullptr ? 0.0 : static_cast<double>(all[i]);
  };
  std::vector<double> h(static_cast<std::size_t>(n)), rounded_h(h);
  for (std::int64_t i = 0; i < n; ++i) {
    const double gate = dot(expert.gate + i * d, x, d) + bias(expert.gate_bias, i);
    const double up = dot(expert.up + i * d, x, d) + bias(expert.up_bias, i);
    const auto at = static_cast<std::size_t>(i);
    h[at] = activated(shape, gate, up);
    rounded_h[at] = rounded(h[at], shape.type);
  }
  for (std::int64_t i = 0; i < d; ++i) {
    const float* down = expert.down + i * n;
    const double added = bias(expert.down_bias, i);
    out[i] += weight * (dot(down, h.data(), n) + added);
    rounded_out[i] += weight * rounded(dot(down, rounded_h.data(), n) + added, shape.type);
  }
}

}  // namespace moe_reference

// `present`: which experts are there; empty: all of them.
inline MoeExpected expected(const MoeNumbers& numbers, const std::vector<bool>& present = {}) {
  const MoeShape& shape = numbers.shape;
  MoeExpected result;
  result.out.resize(static_cast<std::size_t>(shape.tokens * shape.hidden));
  std::vector<double> rounded_out(result.out);
  const auto add = [&](std::int64_t token, const moe_reference::Expert& expert, double weight) {
    const std::int64_t first = token * shape.hidden;
    moe_reference::add_expert(shape, expert, numbers.x.data() + first, weight,
                              result.out.data() + first, rounded_out.data() + first);
  };
  for (std::int64_t pair = 0; pair < shape.tokens * shape.choices; ++pair) {
    const std::int64_t expert = numbers.ids[static_cast<std::size_t>(pair)];
    if (expert < 0 || expert >= shape.experts) continue;
    if (!present.empty() && !present[static_cast<std::size_t>(expert)]) continue;
    add(pair / shape.choices, moe_reference::expert_of(numbers, expert),
        numbers.weights[static_cast<std::size_t>(pair)]);
  }
  for (std::int64_t token = 0; shape.shared_width > 0 && token < shape.tokens; ++token) {
    add(token, moe_reference::shared_expert_of(numbers),
        numbers.shared_weights.empty() ? 1.0
                                       : numbers.shared_weights[static_cast<std::size_t>(token)]);
  }
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < result.out.size(); ++i) {
    error = std::max(error, std::abs(rounded_out[i] - result.out[i]));
    largest = std::max(largest, std::abs(result.out[i]));
  }
  // In f32 the sums themselves are off by some rounding steps, too.
  const double steps = shape.type == DType::f32 ? 32 : 1;
  result.tolerance = 2 * error + steps * spacing(largest, shape.type);
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
