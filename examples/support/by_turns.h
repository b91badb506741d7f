// Times kernels by turns: see penstock/measure/by_turns.h.
#pragma once

#include <stop_token>
#include <vector>

#include "penstock/measure/by_turns.h"

namespace ladder {

using Enqueue = ps::EnqueuePiece;

struct TurnsOptions {
  int turns = 9;
  int warm_up = 1;  // turns before those that count
  std::stop_token stop = {};
};

// The GPU's own seconds for each, medians over the turns. The stream is held until a turn's first
// work is enqueued, or the launch would count. Synchronises the stream. Throws ps::Cancelled.
std::vector<double> by_turns(const ps::Stream& stream, const std::vector<Enqueue>& work,
                             const TurnsOptions& options = {});

}  // namespace ladder
