// Wall time of synchronous work.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace ps {

// The seconds that one call takes.
template <class Run>
double seconds_of(const Run& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Runs `run`, which is named `what`, and returns its time in seconds. If an option of this type is
// empty, seconds_of() is used; tests supply times of their own.
using Timer = std::function<double(std::string_view what, const std::function<void()>& run)>;

inline double timed(const Timer& timer, std::string_view what, const std::function<void()>& run) {
  return timer ? timer(what, run) : seconds_of(run);
}

// The median of one or more values; for an even number, the mean of the middle two.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// The median over `repeats` calls, after one call to warm up.
template <class Run>
double median_seconds(int repeats, const Run& run) {
  run();
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(seconds_of(run));
  return median(std::move(seconds));
}

}  // namespace ps
