// Wall time of work that has completed when it returns.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace ps {

template <class Run>
double seconds_of(const Run& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// One run to warm up, then the median of `repeats`.
template <class Run>
double median_seconds(int repeats, const Run& run) {
  run();
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(seconds_of(run));
  const auto middle = seconds.begin() + repeats / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace ps
