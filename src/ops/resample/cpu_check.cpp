// Looks for times and lengths that break their contract, episodes on all cores; the first fault in
// order wins, whichever was found first.
#include <algorithm>
#include <atomic>
#include <mutex>

#include "ops/resample/cpu.h"
#include "penstock/host/parallel.h"

namespace ps::resampling {
namespace {

using detail::ResampleChecks;
using detail::ResampleFault;
using detail::ResampleWork;
using detail::SensorWork;
using Kind = ResampleFault::Kind;

template <class T>
ResampleFault fault_of_times(const Times<T>& times) {
  for (std::int64_t i = 0; i < times.count; ++i) {
    if (times[i] != times[i]) return {.kind = Kind::nan, .index = i};
    if (i > 0 && times[i] < times[i - 1]) return {.kind = Kind::unsorted, .index = i};
  }
  return {};
}

template <class T>
ResampleFault fault_of_episode(const ResampleWork& work, const SensorWork& sensor,
                               ResampleChecks checks, std::int64_t episode) {
  const Episode samples = episode_of(sensor, episode);
  if (checks.times && samples.wrong) return {.kind = Kind::length};
  const Times<T> times = times_of<T>(sensor, episode, samples);
  if (checks.times) {
    const ResampleFault fault = fault_of_times(times);
    if (fault.kind != Kind::none) return fault;
  }
  if (!checks.outside || times.count == 0) return {};
  const T first = times[0], last = times[times.count - 1];
  const Times<T> at{static_cast<const T*>(work.at) + episode * work.at_episode, work.at_target,
                    work.targets};
  for (std::int64_t i = 0; i < at.count; ++i) {
    if (at[i] < first || at[i] > last) return {.kind = Kind::outside, .index = i};
  }
  return {};
}

template <class T>
ResampleFault fault_of_sensor(const ResampleWork& work, const SensorWork& sensor,
                              ResampleChecks checks) {
  constexpr std::size_t grain = 16 * 1024;  // times
  const std::int64_t times = sensor.samples + work.targets;
  const auto each = static_cast<std::size_t>(std::max<std::int64_t>(
      1, static_cast<std::int64_t>(grain) / std::max<std::int64_t>(1, times)));
  std::mutex mutex;
  ResampleFault first;
  std::atomic<std::int64_t> from{work.episodes};  // none from here on can be the first
  parallel_ranges(static_cast<std::size_t>(work.episodes), each,
                  [&](std::size_t begin, std::size_t end) {
                    const auto last = static_cast<std::int64_t>(end);
                    for (auto i = static_cast<std::int64_t>(begin); i < last && i < from; ++i) {
                      ResampleFault fault = fault_of_episode<T>(work, sensor, checks, i);
                      if (fault.kind == Kind::none) continue;
                      fault.episode = i;
                      const std::lock_guard lock(mutex);
                      if (i < from) {
                        from = i;
                        first = fault;
                      }
                    }
                  });
  return first;
}

}  // namespace
}  // namespace ps::resampling

namespace ps::detail {

ResampleFault check_resample_cpu(const ResampleWork& work, ResampleChecks checks,
                                 const Stream& stream) {
  stream.synchronize();
  for (unsigned i = 0; i < work.sensors; ++i) {
    ResampleFault fault = resampling::with_time(work.time_type, [&](auto time) {
      return resampling::fault_of_sensor<decltype(time)>(work, work.sensor[i], checks);
    });
    fault.sensor = i;
    if (fault.kind != ResampleFault::Kind::none) return fault;
  }
  return {};
}

}  // namespace ps::detail
