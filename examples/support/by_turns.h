// Times pieces of work on one stream by turns, each turn in another order, so that what else
// happens to the machine meets all of them alike, and what one piece leaves in the caches every
// other one.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <vector>

#include "penstock/host/stream.h"

namespace ladder {

// Enqueues its work once. `number` counts up from piece to piece, for work that takes other buffers
// than the piece before it.
using Enqueue = std::function<void(std::size_t number)>;

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
