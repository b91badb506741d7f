// Host work whose runs are interleaved, so that background load affects all of it equally.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "penstock/measure/floor.h"
#include "penstock/measure/timing.h"

namespace bench {

// The seconds of each run, interleaved; the first turn is not counted.
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

// What these runs, which are ways to do the same with one engine alone, make of a floor.
inline ps::Floor floor_of(const std::vector<std::vector<double>>& ways) {
  ps::Floor floor;
  for (const std::vector<double>& passes : ways) {
    for (const double seconds : passes) floor.add(seconds);
  }
  return floor;
}

}  // namespace bench
