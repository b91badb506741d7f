// Host work timed by turns.
#pragma once

#include <functional>
#include <vector>

#include "penstock/measure/timing.h"

namespace bench {

// The seconds of each, by turns; the first turn is not counted.
inline std::vector<std::vector<double>> in_turn(int turns,
                                                const std::vector<std::function<void()>>& runs) {
  std::vector<std::vector<double>> seconds(runs.size());
  for (int turn = -1; turn < turns; ++turn) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const double took = ps::seconds_of(runs[i]);
      if (turn >= 0) seconds[i].push_back(took);
    }
  }
  return seconds;
}

}  // namespace bench
