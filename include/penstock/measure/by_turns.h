// Deprecated: include penstock/measure/interleaved.h. This header goes away in the next version.
#pragma once

#include <vector>

#include "penstock/measure/interleaved.h"

namespace ps {

using TurnsOptions [[deprecated("use InterleavedOptions")]] = InterleavedOptions;

[[deprecated("use interleaved_seconds")]] inline std::vector<std::vector<double>> seconds_by_turns(
    const Stream& stream, const std::vector<EnqueuePiece>& work,
    const InterleavedOptions& options) {
  return interleaved_seconds(stream, work, options);
}

}  // namespace ps
