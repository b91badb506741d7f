// Calls so small that trips to memory are what they take: episodes of which a block holds all, and
// so few targets that a GPU has them all at once.
#pragma once

#include "ops/resample/work.h"

namespace ps::resampling {

inline constexpr unsigned brief_threads = 64;
inline constexpr unsigned brief_rows = 8 * 1024;  // bytes of an episode's, at most
inline constexpr int brief_samples = 252;         // of an episode, at most

// A thread makes one vector of a row. Rows that begin elsewhere are for the other kernels.
inline constexpr unsigned brief_vector = 16;
constexpr unsigned brief_targets(unsigned vectors) { return brief_threads / vectors; }

// Whether rows that move whole are such. Offsets do not tell how long an episode is.
inline bool is_brief(const detail::ResampleWork& work, int multiprocessors) {
  const detail::SensorWork& sensor = work.sensor[0];
  const std::size_t row = static_cast<std::size_t>(work.segment[0].count) * size_of(work.type);
  if (work.sensors != 1 || work.segments != 1 || sensor.offsets != nullptr ||
      sensor.samples > brief_samples || row == 0 || row % brief_vector != 0 ||
      row > brief_threads * brief_vector ||
      static_cast<std::size_t>(sensor.samples) * row > brief_rows) {
    return false;
  }
  const std::int64_t tile = brief_targets(static_cast<unsigned>(row) / brief_vector);
  return work.episodes * ((work.targets + tile - 1) / tile) <= multiprocessors;
}

}  // namespace ps::resampling
