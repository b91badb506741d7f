#include "attention/support/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "penstock/base/error.h"

namespace ladder::attention {

ReferenceRow reference_row(std::span<const float> q, std::span<const float> k,
                           std::span<const float> v, double scale) {
  const std::size_t width = q.size();
  if (width == 0 || k.empty() || k.size() % width != 0 || k.size() != v.size()) {
    ps::detail::throw_invalid(
        "k, v", "rows of q's length, as many of k as of v, at least one",
        fmt::format("{} and {} elements for a q of {}", k.size(), v.size(), width));
  }
  std::vector<double> scores;
  for (std::size_t at = 0; at < k.size(); at += width) {
    scores.push_back(scale * std::inner_product(q.begin(), q.end(), k.subspan(at, width).begin(),
                                                0.0, std::plus<>(), std::multiplies<>()));
  }
  const double most = std::ranges::max(scores);
  ReferenceRow row{.out = std::vector<double>(width), .sizes = std::vector<double>(width)};
  double sum = 0;
  for (std::size_t key = 0; key < scores.size(); ++key) {
    const double probability = std::exp(scores[key] - most);
    sum += probability;
    for (std::size_t i = 0; i < width; ++i) {
      const double value = v[key * width + i];
      row.out[i] += probability * value;
      row.sizes[i] += probability * std::abs(value);
    }
  }
  for (double& each : row.out) each /= sum;
  for (double& each : row.sizes) each /= sum;
  return row;
}

double tolerance_of(double out, double size, double epsilon) {
  // Rounding to nearest is off by at most half the spacing. Float sums and exponentials add little,
  // and so does f16 for probabilities below its normal numbers, where the spacing is 2^-24.
  return epsilon / 2 * (std::abs(out) + size) + 1e-4 * size + 1e-6;
}

}  // namespace ladder::attention
