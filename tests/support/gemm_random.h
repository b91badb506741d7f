// Random calls of gemm(), and a plain reference in f64.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "penstock/ops/gemm.h"
#include "support/elements.h"
#include "support/strided.h"

namespace ps::test {

struct GemmCase {
  std::int64_t m = 0, n = 0, k = 0;
  DType type = DType::bf16;
  // Rows that begin at multiples of 16 bytes, with gaps; else of any stride, also 0 and negative.
  bool aligned = false;
};

// Sizes of 1 to `most`, every fourth of them at a multiple of 64 or next to one.
inline std::int64_t random_extent(std::mt19937& random, std::int64_t most, std::int64_t multiple) {
  auto extent = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)) + 1;
  if (random() % 4 == 0) extent = extent / 64 * 64 + static_cast<std::int64_t>(random() % 3) - 1;
  return std::max<std::int64_t>(1, (extent + multiple - 1) / multiple) * multiple;
}

inline GemmCase random_gemm_case(std::uint32_t seed, std::int64_t most, bool aligned) {
  std::mt19937 random(seed);
  const std::int64_t multiple = aligned ? 8 : 1;
  return {.m = random_extent(random, most, 1),
          .n = random_extent(random, most, multiple),
          .k = random_extent(random, most, multiple),
          .type = random() % 2 == 0 ? DType::bf16 : DType::f16,
          .aligned = aligned};
}

class RandomGemm {
 public:
  RandomGemm(std::uint32_t seed, const GemmCase& size) : size_(size), random_(seed) {
    a_ = array(size.m, size.k, true);
    b_ = array(size.n, size.k, true);
    out_ = array(size.m, size.n, false);
    fill(a_);
    fill(b_);
  }

  GemmOptions options() {
    return placed([](Strided& array) { return array.view(); });
  }
  template <class Placed>
  GemmOptions placed(const Placed& place) {
    return {.a = place(a_), .b = place(b_), .out = place(out_)};
  }

  Strided& out() { return out_; }

  std::string describe() const {
    return std::string(name(size_.type)) + " " + std::to_string(size_.m) + " x " +
           std::to_string(size_.n) + " x " + std::to_string(size_.k);
  }

  // What is wrong with `out`, or "". A sum in f32 may be wrong in its last digits, one per
  // addition.
  std::string wrong() const {
    const std::vector<double> a = numbers(a_), b = numbers(b_);
    for (std::int64_t i = 0; i < size_.m; ++i) {
      for (std::int64_t j = 0; j < size_.n; ++j) {
        double sum = 0, magnitude = 0;
        for (std::int64_t k = 0; k < size_.k; ++k) {
          const double product = a[static_cast<std::size_t>(i * size_.k + k)] *
                                 b[static_cast<std::size_t>(j * size_.k + k)];
          sum += product;
          magnitude += std::abs(product);
        }
        const double error = magnitude * static_cast<double>(size_.k + 16) * std::ldexp(1.0, -23);
        const double allowed = error + 0.5 * spacing(std::abs(sum) + error, size_.type);
        const double got = decoded(static_cast<std::uint32_t>(out_.bits({i, j})), size_.type);
        if (std::abs(got - sum) <= allowed) continue;
        return describe() + ": out[" + std::to_string(i) + ", " + std::to_string(j) + "] is " +
               std::to_string(got) + ", expected " + std::to_string(sum);
      }
    }
    return out_.surroundings_untouched() ? "" : describe() + ": wrote outside out";
  }

 private:
  Strided array(std::int64_t rows, std::int64_t columns, bool input) {
    if (!size_.aligned) {
      return {size_.type,
              {rows, columns},
              {.plain = random_() % 3 == 0, .expand = input, .negative = true, .row = true},
              random_};
    }
    const auto gap = static_cast<std::int64_t>(random_() % 3) * 8;
    return {size_.type, {rows, columns}, std::vector<std::int64_t>{columns + gap, 1}};
  }

  void fill(Strided& array) {
    std::uniform_real_distribution<double> distribution(-1, 1);
    for (std::int64_t i = 0; i < array.size(); ++i) {
      array.set_bits(array.index(i),
                     encoded(rounded(distribution(random_), size_.type), size_.type));
    }
  }

  std::vector<double> numbers(const Strided& array) const {
    std::vector<double> all;
    for (std::int64_t i = 0; i < array.size(); ++i) {
      all.push_back(decoded(static_cast<std::uint32_t>(array.bits(array.index(i))), size_.type));
    }
    return all;
  }

  GemmCase size_;
  std::mt19937 random_;
  Strided a_, b_, out_;
};

}  // namespace ps::test
