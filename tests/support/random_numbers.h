// Normally distributed numbers from a table, since drawing each one would take most of the time of
// a test with large arrays.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "penstock/base/dtype.h"
#include "support/elements.h"

namespace ps::test {

class RandomNumbers {
 public:
  RandomNumbers(DType type, double deviation, std::mt19937& random) {
    std::normal_distribution<double> normal(0, deviation);
    for (std::uint32_t& bits : table_) bits = encoded(rounded(normal(random), type), type);
  }

  std::uint32_t operator()(std::mt19937& random) const { return table_[random() % table_.size()]; }

 private:
  std::vector<std::uint32_t> table_ = std::vector<std::uint32_t>(4096);
};

}  // namespace ps::test
