// Wall time: a warm-up, then the median of a few runs; of fewer when they are long.
#pragma once

#include <algorithm>
#include <chrono>
#include <stop_token>
#include <vector>

#include "penstock/measure/cancelled.h"

namespace ladder {

// Seconds that `run` takes; it must have completed its work when it returns.
template <class Run>
double seconds_of(const Run& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Throws ps::Cancelled between runs when asked to stop.
template <class Run>
double median_seconds(int repeats, const std::stop_token& stop, const Run& run) {
  constexpr double enough_seconds = 2;
  run();
  std::vector<double> seconds;
  double sum = 0;
  for (int i = 0; i < repeats && (i < 3 || sum < enough_seconds); ++i) {
    if (stop.stop_requested()) throw ps::Cancelled();
    seconds.push_back(seconds_of(run));
    sum += seconds.back();
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace ladder
