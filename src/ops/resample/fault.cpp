// What a check found, in words.
#include <fmt/format.h>

#include "ops/resample/arguments.h"
#include "ops/resample/cpu.h"
#include "penstock/base/error.h"

namespace ps::resampling {
namespace {

[[noreturn]] void throw_length_fault(const detail::ResampleFault& fault,
                                     const detail::SensorWork& sensor, const std::string& self,
                                     bool readable) {
  const std::string where = fmt::format("at b = {}", fault.episode);
  const auto value = [&](std::int64_t i) { return length_at(sensor, fault.episode + i); };
  if (sensor.lengths != nullptr) {
    detail::throw_invalid(self + "lengths", fmt::format("lengths from 0 to {}", sensor.samples),
                          readable ? fmt::format("{} {}", value(0), where) : "another " + where);
  }
  detail::throw_invalid(
      self + "offsets", fmt::format("non-decreasing offsets from 0 to {}", sensor.samples),
      readable ? fmt::format("{} to {} {}", value(0), value(1), where) : "others " + where);
}

}  // namespace

void throw_fault(const detail::ResampleFault& fault, const detail::ResampleWork& work,
                 bool readable, bool of_sensors) {
  using Kind = detail::ResampleFault::Kind;
  if (fault.kind == Kind::none) return;
  const detail::SensorWork& sensor = work.sensor[fault.sensor];
  const std::string self = of_sensors ? fmt::format("sensors[{}].", fault.sensor) : "";
  const bool outside = fault.kind == Kind::outside;
  const std::string where =
      fmt::format("at (b, {}) = ({}, {})", outside ? "t" : "s", fault.episode, fault.index);
  if (fault.kind == Kind::length) throw_length_fault(fault, sensor, self, readable);
  with_time(work.time_type, [&](auto time) {
    using T = decltype(time);
    const Times<T> times =
        readable ? times_of<T>(sensor, fault.episode, episode_of(sensor, fault.episode))
                 : Times<T>{};
    if (fault.kind == Kind::nan) {
      detail::throw_invalid(self + "times", "times that are numbers", "NaN " + where);
    }
    if (fault.kind == Kind::unsorted) {
      detail::throw_invalid(self + "times", "non-decreasing timestamps",
                            readable ? fmt::format("{} after {} {}", times[fault.index],
                                                   times[fault.index - 1], where)
                                     : "a smaller one " + where);
    }
    const std::string owner = of_sensors ? fmt::format(" of sensors[{}]", fault.sensor) : "";
    if (!readable) {
      detail::throw_invalid("at", "target times within the timestamps" + owner,
                            "one that is not, " + where);
    }
    const T wanted = static_cast<const T*>(
        work.at)[fault.episode * work.at_episode + fault.index * work.at_target];
    detail::throw_invalid("at",
                          fmt::format("target times within the timestamps{}, {} to {}", owner,
                                      times[0], times[times.count - 1]),
                          fmt::format("{} {}", wanted, where));
  });
}

}  // namespace ps::resampling
