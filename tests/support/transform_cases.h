// The prebuilt elementwise functions with their references, for the tests of every device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "penstock/ops/transform.h"
#include "support/elements.h"

namespace ps::test {

inline constexpr DType float_types[] = {DType::f32, DType::f16, DType::bf16};

struct TransformCase {
  std::string name;
  unsigned inputs;
  std::function<void(const std::vector<TensorView>& in, const TensorView& out, TransformKernel,
                     const Stream&)>
      run;
  std::function<double(const std::vector<double>&)> exact;  // in double
  // In f32 with the roundings that are promised; null where only closeness is.
  std::function<float(const std::vector<float>&)> same_bits;
  // How often the rounding of an intermediate result counts, beside the few that always do.
  std::function<double(const std::vector<double>&)> condition{};
};

inline const std::vector<TransformCase>& transform_cases() {
  using Views = std::vector<TensorView>;
  using Doubles = std::vector<double>;
  using Floats = std::vector<float>;
  const auto add = [](const Views& in, const TensorView& out, TransformKernel k, const Stream& s) {
    ps::add({.in = in, .out = out, .kernel = k}, s);
  };
  const auto sum = [](const auto& x) {
    auto total = x[0];
    for (std::size_t i = 1; i < x.size(); ++i) total += x[i];
    return total;
  };
  static const std::vector<TransformCase> cases = {
      {"scale", 1,
       [](const Views& in, const TensorView& out, TransformKernel k, const Stream& s) {
         ps::scale({.in = in[0], .out = out, .factor = -1.7F, .kernel = k}, s);
       },
       [](const Doubles& x) { return -1.7F * x[0]; }, [](const Floats& x) { return -1.7F * x[0]; }},
      {"axpby", 2,
       [](const Views& in, const TensorView& out, TransformKernel k, const Stream& s) {
         ps::axpby({.x = in[0], .y = in[1], .out = out, .a = 0.3F, .b = -2.1F, .kernel = k}, s);
       },
       [](const Doubles& x) { return 0.3F * x[0] + -2.1F * x[1]; },
       [](const Floats& x) {
         const float second = -2.1F * x[1];
         return std::fma(0.3F, x[0], second);
       }},
      {"add2", 2, add, sum, sum},
      {"add3", 3, add, sum, sum},
      {"add4", 4, add, sum, sum},
      {"mul", 2,
       [](const Views& in, const TensorView& out, TransformKernel k, const Stream& s) {
         ps::mul({.x = in[0], .y = in[1], .out = out, .kernel = k}, s);
       },
       [](const Doubles& x) { return x[0] * x[1]; }, [](const Floats& x) { return x[0] * x[1]; }},
      {"swiglu", 2,
       [](const Views& in, const TensorView& out, TransformKernel k, const Stream& s) {
         ps::swiglu({.gate = in[0], .up = in[1], .out = out, .kernel = k}, s);
       },
       [](const Doubles& x) { return x[0] / (1 + std::exp(-x[0])) * x[1]; }, nullptr},
      {"gelu_exact", 1,
       [](const Views& in, const TensorView& out, TransformKernel k, const Stream& s) {
         ps::gelu({.in = in[0], .out = out, .kernel = k}, s);
       },
       [](const Doubles& x) { return 0.5 * x[0] * std::erfc(-x[0] / std::sqrt(2.0)); }, nullptr},
      {"gelu_tanh", 1,
       [](const Views& in, const TensorView& out, TransformKernel k, const Stream& s) {
         ps::gelu({.in = in[0], .out = out, .form = Gelu::tanh, .kernel = k}, s);
       },
       [](const Doubles& x) {
         // x / (1 + e^-2u) keeps its digits where 1 + tanh(u) loses them.
         const double u = std::sqrt(2 / M_PI) * (x[0] + 0.044715 * x[0] * x[0] * x[0]);
         return x[0] / (1 + std::exp(-2 * u));
       },
       nullptr,
       // Left of 0 an error of 2u is one of the exponential, and 2u is computed in f32.
       [](const Doubles& x) {
         return x[0] > 0 ? 0 : 4 * std::abs(1.6 * (x[0] + 0.044715 * x[0] * x[0] * x[0]));
       }},
  };
  return cases;
}

// What f32 arithmetic may add to the rounding of the result: some units of f32's last place, and
// numbers near f32's smallest. On a GPU, results of 16 bits come from quicker exponentials: a tenth
// of the rounding itself.
inline double transform_tolerance(double exact, double condition, double largest, DType out,
                                  bool quick) {
  const double units = 8 + condition + (quick && out != DType::f32 ? 800 : 0);
  const double smallest = 1e-36 * std::max(1.0, largest);  // of a factor, times the other
  return std::ldexp(std::abs(exact) * units, -24) + smallest + 0.5 * spacing(exact, out);
}

// Mostly near 0, some anywhere that the type reaches.
inline void fill_random(Elements& elements, std::mt19937& random) {
  std::normal_distribution<double> near(0, 2);
  std::uniform_real_distribution<double> exponent(-30, 14);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const double far = std::exp2(exponent(random));
    elements.set(i, random() % 8 == 0 ? std::copysign(far, near(random)) : near(random));
  }
}

// The same for many: a prime number of elements again and again.
inline void fill_random_quickly(Elements& elements, std::mt19937& random) {
  constexpr std::size_t period = 8191;
  Elements some(elements.type(), std::min(period, elements.size()));
  fill_random(some, random);
  const std::size_t element = size_of(elements.type());
  for (std::size_t i = 0; i < elements.size(); i += period) {
    std::memcpy(static_cast<std::byte*>(elements.data()) + i * element, some.data(),
                std::min(period, elements.size() - i) * element);
  }
}

// "" when element i of `out` is right, else what is wrong.
template <class Values>
std::string wrong(const TransformCase& each, const std::vector<Values>& in, const Values& out,
                  std::size_t i, bool quick = false) {
  std::vector<double> x;
  std::vector<float> narrow;
  double largest = 0;
  for (const Values& input : in) {
    x.push_back(input[i]);
    largest = std::max(largest, std::abs(x.back()));
    narrow.push_back(static_cast<float>(input[i]));
  }
  const double got = out[i], exact = each.exact(x);
  const auto say = [&](double wanted) {
    std::string text = each.name + " of";
    for (const double value : x) text += " " + std::to_string(value);
    return text + " gave " + std::to_string(got) + ", not " + std::to_string(wanted) +
           ", at element " + std::to_string(i);
  };
  if (each.same_bits) {
    const double wanted = rounded(each.same_bits(narrow), out.type());
    const bool right = std::isnan(wanted)
                           ? std::isnan(got)
                           : got == wanted && std::signbit(got) == std::signbit(wanted);
    return right ? "" : say(wanted);
  }
  if (std::isnan(exact)) return std::isnan(got) ? "" : say(exact);
  if (std::isinf(exact) || std::isinf(rounded(exact, out.type()))) {
    return got == rounded(exact, out.type()) ? "" : say(exact);
  }
  const double condition = each.condition ? each.condition(x) : 0;
  const double tolerance = transform_tolerance(exact, condition, largest, out.type(), quick);
  return std::abs(got - exact) <= tolerance ? "" : say(exact);
}

}  // namespace ps::test
