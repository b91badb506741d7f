#include "outofcore/calls_in_flight.h"

#include "penstock/outofcore/experts.h"

namespace ps::detail {

std::shared_ptr<void> CallsInFlight::begin() {
  std::uint64_t number = 0;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || numbers_.size() < most_; });
    if (closed_) throw ExpertsClosed("the experts are closed");
    number = ++begun_;
    numbers_.insert(numbers_.end(), number);
  }
  // Without the lock: if there is no memory for the pointer, this ends the call.
  return {this, [number](CallsInFlight* mine) { mine->end(number); }};
}

void CallsInFlight::end(std::uint64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  numbers_.erase(number);
  changed_.notify_all();
}

void CallsInFlight::wait() {
  std::unique_lock lock(mutex_);
  const std::uint64_t last = begun_;
  changed_.wait(lock, [&] { return numbers_.empty() || *numbers_.begin() > last; });
}

void CallsInFlight::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace ps::detail
