// What the GPU's kernels share: episodes, and where to begin looking.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>

#include "ops/resample/formula.h"
#include "ops/resample/work.h"
#include "penstock/kit/scheduler.h"

namespace ps::resampling {

// Where an episode begins in the rows of samples, and how many it has; none where that is wrong.
struct DeviceEpisode {
  std::int64_t begin = 0, count = 0;
};

__device__ inline std::int64_t device_length(const detail::SensorWork& sensor, const void* from,
                                             std::int64_t i) {
  i *= sensor.length_stride;
  return sensor.wide_lengths ? static_cast<const std::int64_t*>(from)[i]
                             : static_cast<const std::int32_t*>(from)[i];
}

__device__ inline DeviceEpisode device_episode(const detail::SensorWork& sensor, std::int64_t b,
                                               bool& wrong) {
  wrong = false;
  const bool side_by_side = sensor.offsets != nullptr;
  const void* const given = side_by_side ? sensor.offsets : sensor.lengths;
  if (given == nullptr) [[likely]]
    return {0, sensor.samples};
  // Both are asked for at once, also where one is enough.
  const std::int64_t first = device_length(sensor, given, b);
  const std::int64_t end = device_length(sensor, given, side_by_side ? b + 1 : b);
  const std::int64_t begin = side_by_side ? first : 0;
  wrong = begin < 0 || end < begin || end > sensor.samples;
  return wrong ? DeviceEpisode{} : DeviceEpisode{begin, end - begin};
}

template <class Time>
__device__ inline Times<Time> device_times(const detail::SensorWork& sensor, std::int64_t b,
                                           const DeviceEpisode& episode) {
  return {static_cast<const Time*>(sensor.times) + b * sensor.time_episode +
              episode.begin * sensor.time_sample,
          sensor.time_sample, episode.count};
}

// Of an episode whose places, and those a few of its lengths away, are ints.
inline constexpr std::int64_t most_samples = std::numeric_limits<int>::max() / 4;

// A place to begin looking from: where the sample would be if the targets went from the first to
// the last in even steps, of which `even` is one as a share of all the way.
inline float even_step(unsigned targets) {
  return targets > 1 ? 1 / static_cast<float>(targets - 1) : 0;
}
template <class Index>
__device__ inline Index even_place(float even, unsigned t, Index samples) {
  const auto last = samples > 0 ? samples - 1 : 0;
  const auto place = static_cast<Index>(static_cast<float>(t) * even * static_cast<float>(last));
  return place < last ? place : last;
}

}  // namespace ps::resampling
