// Times kernels in interleaved runs: see penstock/measure/interleaved.h.
#pragma once

#include <stop_token>
#include <vector>

#include "penstock/measure/interleaved.h"

namespace ladder {

using Enqueue = ps::EnqueuePiece;

struct InterleavedOptions {
  int turns = 9;
  int warm_up = 1;  // turns before them that are not timed
  std::stop_token stop = {};
};

// Seconds on the GPU for each, medians over the turns. The stream is kept busy until a turn's first
// work is enqueued, so that launch latency is not counted. Synchronises the stream. Throws
// ps::Cancelled.
std::vector<double> interleaved_medians(const ps::Stream& stream, const std::vector<Enqueue>& work,
                                        const InterleavedOptions& options = {});

// The same, with the seconds of every turn: for floors, which are the best of them.
std::vector<std::vector<double>> interleaved_passes(const ps::Stream& stream,
                                                    const std::vector<Enqueue>& work,
                                                    const InterleavedOptions& options = {});

}  // namespace ladder
