// The CPU's resampling: what its files share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/resample/formula.h"
#include "ops/resample/rows.h"
#include "ops/resample/work.h"
#include "penstock/base/dtype.h"

namespace ps::resampling {

// Calls use(T{}) with the type of times.
template <class Use>
auto with_time(DType type, const Use& use) {
  if (type == DType::f64) return use(double{});
  if (type == DType::i64) return use(std::int64_t{});
  return use(float{});
}

// The samples of an episode, where all of a sensor's are numbered through.
struct Episode {
  std::int64_t begin = 0, count = 0;
  bool wrong = false;  // its length or its offsets; it then counts as empty
};
// One of the lengths or offsets, whichever there are.
std::int64_t length_at(const detail::SensorWork& sensor, std::int64_t i);
Episode episode_of(const detail::SensorWork& sensor, std::int64_t episode);

template <class T>
Times<T> times_of(const detail::SensorWork& sensor, std::int64_t episode, const Episode& samples) {
  const T* first = static_cast<const T*>(sensor.times) + episode * sensor.time_episode +
                   samples.begin * sensor.time_sample;
  return {first, sensor.time_sample, samples.count};
}

// Wanted times [begin, end), episodes one after the other.
void resample_range(const detail::ResampleWork& work, const RowKernels& rows, std::size_t begin,
                    std::size_t end);

}  // namespace ps::resampling
