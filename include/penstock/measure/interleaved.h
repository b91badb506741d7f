// Times pieces of work on one stream in interleaved runs: every turn runs each piece once, in a new
// order. Background load and cache contents then affect all pieces equally.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <vector>

#include "penstock/host/stream.h"

namespace ps {

// Enqueues one piece of work and returns. `number` counts all calls, so that consecutive calls can
// use different buffers.
using EnqueuePiece = std::function<void(std::size_t number)>;

struct InterleavedOptions {
  int turns = 9;    // timed
  int warm_up = 1;  // turns before them that are not timed
  // Enqueues work that keeps the stream busy while a turn is enqueued.
  std::function<void()> hold{};
  std::stop_token stop{};
};

// Seconds on the device, measured by events: result[piece][turn]. Synchronises the stream. Throws
// Cancelled when `stop` is requested.
std::vector<std::vector<double>> interleaved_seconds(const Stream& stream,
                                                     const std::vector<EnqueuePiece>& work,
                                                     const InterleavedOptions& options);

}  // namespace ps
