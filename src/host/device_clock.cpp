#include "host/device_clock.h"

#include "host/clock.h"

namespace ps::detail {

DeviceClock::DeviceClock(const Stream& stream)
    : stream_(stream),
      origin_(stream.device(), {.timing = true, .waiting = Waiting::spin}),
      end_(stream.device(), {.timing = true, .waiting = Waiting::spin}) {
  mark(origin_);  // the first launch is slow
  origin_ns_ = mark(origin_);
}

std::int64_t DeviceClock::mark(const Event& event) const {
  stream_.synchronize();
  const std::int64_t before = now_ns();
  stream_.record(event);
  event.synchronize();
  return before;
}

void DeviceClock::close() {
  const std::int64_t end_ns = mark(end_);
  const double device = Event::seconds_between(origin_, end_);
  // Over a short time the jitter of a launch would look like drift.
  if (device > 0.1) rate_ = static_cast<double>(end_ns - origin_ns_) * 1e-9 / device;
}

std::int64_t DeviceClock::host_ns(double seconds_since_origin) const {
  return origin_ns_ + static_cast<std::int64_t>(seconds_since_origin * rate_ * 1e9);
}

}  // namespace ps::detail
