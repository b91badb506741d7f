// A point in a stream that other streams and host threads can wait for.
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
  // Polls and sleeps in between, 20 us at first, later 2 % of the time waited so far.
  poll,
  // Polls without sleeping: returns within microseconds, keeps one core busy.
  spin,
  // Sleeps until the device interrupts, which takes no CPU time. Every record then costs the stream
  // several microseconds, even if nobody waits, and recording blocks after about fifty such records
  // in flight.
  block,
};

struct EventOptions {
  bool timing = false;  // events without timing are cheaper to record
  Waiting waiting = Waiting::poll;
};

// A handle; copies refer to the same event. An event that was never recorded counts as complete.
// Recording it again does not affect waits that are already enqueued.
class Event {
 public:
  // Throws DeviceError or OutOfMemory.
  explicit Event(const Device& device, EventOptions options = {});

  // Whether the work before the recorded point has completed. Never blocks. Throws DeviceError if
  // that work failed; Unsupported if the event was last recorded in a stream capture, or if CUDA
  // forbids the query because of a capture in progress.
  bool done() const;

  // Blocks the calling thread until the work before the recorded point has completed. Throws the
  // same errors as done().
  void synchronize() const;

  // Seconds from `start` to `stop`. Throws InvalidArgument unless both are complete and were
  // recorded with timing on the same device.
  static double seconds_between(const Event& start, const Event& stop);

  Device device() const;
  detail::EventImpl& impl() const { return *impl_; }

 private:
  std::shared_ptr<detail::EventImpl> impl_;
};

}  // namespace ps
