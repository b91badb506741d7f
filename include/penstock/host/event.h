// A point in a stream that others may wait for.
#pragma once

#include <cstdint>
#include <memory>

#include "penstock/host/device.h"

namespace ps {

namespace detail {
class EventImpl;
}

// How a host thread waits for an event.
enum class Waiting : std::uint8_t {
  // Looks again and again and sleeps in between: 20 us at first, later a fiftieth of the wait.
  poll,
  // Looks all the time: microseconds late, one core busy.
  spin,
  // Sleeps until the device interrupts: no CPU time. The interrupt costs the stream several
  // microseconds at every record, whether or not somebody waits, and a stream takes only some fifty
  // such records before recording itself waits.
  block,
};

struct EventOptions {
  bool timing = false;  // events without timing are cheaper to record
  Waiting waiting = Waiting::poll;
};

// A handle; copies name the same event. An event that was never recorded counts as complete.
// Recording again moves it; waits already enqueued keep the earlier point.
class Event {
 public:
  // Throws DeviceError or OutOfMemory.
  explicit Event(const Device& device, EventOptions options = {});

  // Whether the recorded point was reached. Never blocks. Throws DeviceError when work before it
  // failed.
  bool done() const;

  // Blocks the calling thread until the recorded point is reached.
  void synchronize() const;

  // Seconds from `start` to `stop`, both recorded with timing on one device and complete.
  // Throws InvalidArgument otherwise.
  static double seconds_between(const Event& start, const Event& stop);

  Device device() const;
  detail::EventImpl& impl() const { return *impl_; }

 private:
  std::shared_ptr<detail::EventImpl> impl_;
};

}  // namespace ps
