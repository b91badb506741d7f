// Floors: times that no run can beat, and the one rule by which a result that beats its floor is
// dropped. Peers and yardsticks (cudaMemcpy, memcpy, a loop written by hand) are not floors: a
// result may beat them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "penstock/measure/timing.h"

namespace ps {

// The best time over all passes that measured one engine alone, never as part of the run that is
// judged by it. Every further pass can only lower it.
class Floor {
 public:
  // One pass of the engine alone. Throws InvalidArgument unless `seconds` is positive and finite.
  void add(double seconds);

  // Runs `pass`, which has completed its work when it returns, and adds its time; returns that
  // time.
  template <class Pass>
  double time(const Pass& pass) {
    const double seconds = seconds_of(pass);
    add(seconds);
    return seconds;
  }

  // Takes over the passes of `other`, which measured the same engine.
  void merge(const Floor& other);

  std::size_t passes() const { return passes_.size(); }
  // The best pass. Throws std::logic_error if there is none.
  double seconds() const;
  // The median pass divided by the best: on a quiet machine little more than 1. Throws
  // std::logic_error if there is no pass.
  double spread() const;

 private:
  std::vector<double> passes_;
};

// A result below 0.98 x its floor is a measuring error. Between 0.98 and 1 it is within the noise
// of the clock.
inline constexpr double least_over_floor = 0.98;

struct FloorVerdict {
  double over_floor = 0;  // the time divided by the floor
  std::string reason;     // why the result is dropped; empty if it is kept

  bool kept() const { return reason.empty(); }
};

// Judges one result. Throws InvalidArgument unless both are positive and finite.
FloorVerdict judge_by_floor(double seconds, double floor_seconds);

}  // namespace ps
