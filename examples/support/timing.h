// Wall time: a warm-up, then the median of a few runs.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace ladder {

// Seconds that `run` takes; it must have completed its work when it returns.
template <class Run>
double seconds_of(const Run& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

template <class Run>
double median_seconds(int repeats, const Run& run) {
  run();
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(seconds_of(run));
  const auto middle = seconds.begin() + repeats / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace ladder
