// The same work as a CUDA programmer writes it by hand: a stream per engine, an event per slot, no
// checks. What the library must not be slower than.
#pragma once

#include <cstddef>
#include <memory>

#include "penstock/measure/overlap.h"

namespace bench {

struct PlainLoopOptions {
  ps::Ways ways = ps::Ways::three;
  std::size_t chunk = 0;
  std::size_t depth = 4;
  int rounds = 1;
};

class PlainLoop {
 public:
  PlainLoop(const ps::Yardstick& yardstick, const PlainLoopOptions& options);
  ~PlainLoop();
  PlainLoop(const PlainLoop&) = delete;
  PlainLoop& operator=(const PlainLoop&) = delete;

  void run();  // all bytes once; synchronises

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace bench
