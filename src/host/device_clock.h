// Places a device's events on the host's clock.
#pragma once

#include <array>
#include <cstdint>

#include "penstock/host/event.h"
#include "penstock/host/stream.h"

namespace ps::detail {

// Two pairs of (device time, host time), taken before and after, allow for clocks that drift apart.
// Each pair takes the host time just before the event was enqueued, so a device time is placed too
// early rather than too late, by the few microseconds of a launch.
class DeviceClock {
 public:
  // Synchronises `stream`.
  explicit DeviceClock(Stream stream);
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;

  const Event& origin() const { return *origin_.event; }

  // Takes the second pair; synchronises the stream.
  void close();

  // Host time (as now_ns) of a device time given in seconds since the origin.
  std::int64_t host_ns(double seconds_since_origin) const;

 private:
  using Launches = std::array<Event, 3>;
  struct Mark {
    const Event* event = nullptr;
    std::int64_t host_ns = 0;
  };
  Launches events() const;
  Mark mark(const Launches& launches) const;

  Stream stream_;
  Launches first_, last_;
  Mark origin_;
  double rate_ = 1;  // host seconds per device second
};

}  // namespace ps::detail
