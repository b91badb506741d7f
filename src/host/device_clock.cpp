#include "host/device_clock.h"

#include <limits>
#include <utility>

#include "host/clock.h"

namespace ps::detail {

DeviceClock::Launches DeviceClock::events() const {
  const EventOptions options{.timing = true, .waiting = Waiting::spin};
  const Device device = stream_.device();
  return {Event(device, options), Event(device, options), Event(device, options)};
}

DeviceClock::DeviceClock(Stream stream)
    : stream_(std::move(stream)), first_(events()), last_(events()), origin_(mark(first_)) {}

// The first launch is slow, and a busy machine may put any of them off: the soonest counts.
DeviceClock::Mark DeviceClock::mark(const Launches& launches) const {
  Mark best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Event& event : launches) {
    stream_.synchronize();
    const std::int64_t before = now_ns();
    stream_.record(event);
    event.synchronize();
    const std::int64_t took = now_ns() - before;
    if (took >= least) continue;
    least = took;
    best = {&event, before};
  }
  return best;
}

void DeviceClock::close() {
  const Mark end = mark(last_);
  const double device = Event::seconds_between(*origin_.event, *end.event);
  // Over a short time the jitter of a launch would look like drift.
  if (device > 0.1) rate_ = static_cast<double>(end.host_ns - origin_.host_ns) * 1e-9 / device;
}

std::int64_t DeviceClock::host_ns(double seconds_since_origin) const {
  return origin_.host_ns + static_cast<std::int64_t>(seconds_since_origin * rate_ * 1e9);
}

}  // namespace ps::detail
