// What the GPU's kernels share: episodes, division by what a launch knows, the bits of no sample.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/resample/formula.h"
#include "ops/resample/work.h"

namespace ps::resampling {

// i / divisor for any i, by multiplication.
class Divider {
 public:
  Divider() = default;
  explicit Divider(unsigned divisor) {
    while ((std::uint64_t{1} << shift_) < divisor) ++shift_;
    factor_ = static_cast<unsigned>((((std::uint64_t{1} << shift_) - divisor) << 32) / divisor + 1);
  }
  __device__ unsigned operator()(unsigned i) const {
    const unsigned high = __umulhi(i, factor_);
    return shift_ == 0 ? i : (high + ((i - high) >> 1)) >> (shift_ - 1);
  }

 private:
  unsigned factor_ = 0, shift_ = 0;
};

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
  if (sensor.offsets != nullptr) {
    const std::int64_t begin = device_length(sensor, sensor.offsets, b);
    const std::int64_t end = device_length(sensor, sensor.offsets, b + 1);
    wrong = begin < 0 || end < begin || end > sensor.samples;
    return wrong ? DeviceEpisode{} : DeviceEpisode{begin, end - begin};
  }
  if (sensor.lengths == nullptr) return {0, sensor.samples};
  const std::int64_t count = device_length(sensor, sensor.lengths, b);
  wrong = count < 0 || count > sensor.samples;
  return {0, wrong ? 0 : count};
}

template <class Time>
__device__ inline Times<Time> device_times(const detail::SensorWork& sensor, std::int64_t b,
                                           const DeviceEpisode& episode) {
  return {static_cast<const Time*>(sensor.times) + b * sensor.time_episode +
              episode.begin * sensor.time_sample,
          sensor.time_sample, episode.count};
}

// A place to begin looking from: where the sample would be if the targets went from the first to
// the last in even steps.
__device__ inline std::int64_t even_place(unsigned t, unsigned targets, std::int64_t samples) {
  if (targets < 2 || samples < 2) return 0;
  const float share = static_cast<float>(t) / static_cast<float>(targets - 1);
  const auto place = static_cast<std::int64_t>(share * static_cast<float>(samples - 1));
  return place < samples ? place : samples - 1;
}

}  // namespace ps::resampling
