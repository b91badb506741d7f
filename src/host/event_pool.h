// Events that are reused, so that a loop creates none once it runs.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "penstock/host/event.h"

namespace ps::detail {

// Thread-safe.
class EventPool {
 public:
  explicit EventPool(Device device) : device_(std::move(device)) {}

  // An event that nobody else has. It returns to the pool when the last copy of the pointer is
  // gone, which may be after the pool. Throws DeviceError or OutOfMemory.
  std::shared_ptr<Event> take() {
    std::unique_ptr<Event> event;
    {
      const std::lock_guard lock(unused_->mutex);
      if (!unused_->events.empty()) {
        event = std::move(unused_->events.back());
        unused_->events.pop_back();
      } else {
        unused_->events.reserve(unused_->made + 1);  // the way back must not fail
        event = std::make_unique<Event>(device_);
        ++unused_->made;
      }
    }
    // If this throws, `event` goes to the deleter.
    return {event.release(), [unused = unused_](Event* used) noexcept {
              const std::lock_guard lock(unused->mutex);
              unused->events.emplace_back(used);
            }};
  }

 private:
  struct Unused {
    std::mutex mutex;
    std::vector<std::unique_ptr<Event>> events;
    std::size_t made = 0;
  };

  Device device_;
  std::shared_ptr<Unused> unused_ = std::make_shared<Unused>();
};

}  // namespace ps::detail
