#include "host/cuda/signal.h"

#include <atomic>
#include <utility>

#include "host/cuda/stream.h"

namespace ps::cuda {
namespace {

Stream& own(detail::StreamImpl& stream) { return dynamic_cast<Stream&>(stream); }

std::shared_ptr<Backend> backend_of(detail::StreamImpl& stream) {
  return std::static_pointer_cast<Backend>(stream.backend().shared_from_this());
}

}  // namespace

Signal::Signal(std::shared_ptr<Backend> backend, std::uint32_t value)
    : backend_(std::move(backend)),
      number_(static_cast<std::uint32_t*>(backend_->allocate_pinned(sizeof(std::uint32_t)))) {
  *number_ = value;
}

Signal::~Signal() {
  for (const Passed& passed : passed_) {
    const Guard guard(*passed.backend);
    Driver& driver = passed.backend->driver();
    if (driver.event_synchronize(passed.event->handle()) != success) driver.last_error();
  }
  if (unmarked_) unmarked_->drain();
  backend_->free_pinned(number_, sizeof(*number_));
}

bool Signal::serves(detail::StreamImpl& stream) {
  return stream.backend().kind() == DeviceKind::cuda &&
         own(stream).device_backend().properties().stream_wait_value;
}

void Signal::wait(detail::StreamImpl& stream, std::uint32_t value) {
  const std::shared_ptr<Backend> backend = backend_of(stream);
  const std::lock_guard lock(mutex_);
  const Guard guard(*backend);
  backend->check(backend->driver().stream_wait_value(own(stream).handle(), number_, value),
                 "making a stream wait for a number");
  mark(backend, own(stream).handle());
}

void Signal::write(detail::StreamImpl& stream, std::uint32_t value) {
  const std::shared_ptr<Backend> backend = backend_of(stream);
  const Guard guard(*backend);
  backend->check(backend->driver().stream_write_value(own(stream).handle(), number_, value),
                 "writing a number in a stream");
}

void Signal::raise(std::uint32_t value) noexcept {
  const std::atomic_ref<std::uint32_t> number(*number_);
  if (static_cast<std::int32_t>(value - number.load(std::memory_order_relaxed)) <= 0) return;
  number.store(value, std::memory_order_seq_cst);
}

// Without the event the memory could not be freed safely by waiting for this stream alone.
void Signal::mark(const std::shared_ptr<Backend>& backend, void* stream) {
  Status status = success;
  try {
    auto event = take_event(backend);
    status = backend->driver().event_record(event->handle(), stream);
    if (status == success) {
      passed_.push_back({backend, std::move(event)});
      return;
    }
    backend->driver().last_error();
  } catch (...) {
    // No event could be made.
  }
  unmarked_ = backend;
}

// The oldest one again if its stream has passed it, so that there are only as many as waits that
// are still to come.
std::shared_ptr<EventOwner> Signal::take_event(const std::shared_ptr<Backend>& backend) {
  if (!passed_.empty() && passed_.front().backend == backend) {
    Driver& driver = backend->driver();
    if (driver.event_query(passed_.front().event->handle()) == success) {
      auto event = std::move(passed_.front().event);
      passed_.pop_front();
      return event;
    }
    driver.last_error();  // "not ready" must not look like the caller's failure
  }
  return std::make_shared<EventOwner>(backend, false, false);
}

}  // namespace ps::cuda
