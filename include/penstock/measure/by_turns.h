// Times pieces of work on one stream by turns, each turn in another order, so that what else
// happens to the machine meets all of them alike, and what one piece leaves in the caches every
// other one.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <vector>

#include "penstock/host/stream.h"

namespace ps {

// Enqueues its work once. `number` counts up from piece to piece, for work that takes other buffers
// than the piece before it.
using EnqueuePiece = std::function<void(std::size_t number)>;

struct TurnsOptions {
  int turns = 9;
  int warm_up = 1;               // turns before those that count
  std::function<void()> hold{};  // enqueues what keeps the stream busy until the first is enqueued
  std::stop_token stop{};
};

// The device's own seconds for each piece and, within it, each turn. Synchronises the stream.
// Throws Cancelled.
std::vector<std::vector<double>> seconds_by_turns(const Stream& stream,
                                                  const std::vector<EnqueuePiece>& work,
                                                  const TurnsOptions& options);

}  // namespace ps
