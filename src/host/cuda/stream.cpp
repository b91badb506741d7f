#include "host/cuda/stream.h"

#include <fmt/format.h>

#include <utility>

#include "host/clock.h"
#include "host/cuda/event.h"
#include "host/flag.h"
#include "host/piece_borders.h"
#include "penstock/base/error.h"

namespace ps::cuda {

Stream::~Stream() {
  calls_.reset();
  if (!owned_) return;
  const Guard guard(*backend_);
  if (backend_->driver().stream_destroy(handle_) != success) backend_->driver().last_error();
}

bool Stream::is_capturing() {
  bool capturing = false;
  backend_->check(backend_->driver().stream_is_capturing(handle_, &capturing),
                  "querying whether a stream is being captured");
  return capturing;
}

void Stream::refuse_capture(const char* operation) {
  backend_->check_alive();
  const Guard guard(*backend_);  // a default stream is that of the current device
  if (is_capturing()) {
    throw Unsupported(fmt::format(
        "{} cannot be captured into a CUDA graph; end the capture first or leave it out",
        operation));
  }
}

HostCalls& Stream::calls() {
  const std::lock_guard lock(calls_mutex_);
  if (!calls_) calls_ = std::make_unique<HostCalls>(backend_);
  return *calls_;
}

HostCalls* Stream::existing_calls() {
  const std::lock_guard lock(calls_mutex_);
  return calls_.get();
}

void Stream::call(detail::StreamFunction function) {
  refuse_capture("Stream::call");
  calls().enqueue(handle_, std::move(function), true);
}

void Stream::notify(detail::StreamFunction function) {
  refuse_capture("Stream::notify");
  calls().enqueue(handle_, std::move(function), false);
}

void Stream::wait(detail::EventImpl& event) {
  backend_->check_alive();
  const Guard guard(*backend_);
  backend_->check(
      backend_->driver().stream_wait_event(handle_, dynamic_cast<Event&>(event).handle()),
      "making a stream wait for an event");
}

void Stream::record(detail::EventImpl& event) {
  backend_->check_alive();
  auto* mine = dynamic_cast<Event*>(&event);
  if (mine == nullptr || &mine->cuda() != backend_.get()) {
    detail::throw_invalid("event", "an event of " + backend_->name(),
                          "one of " + event.backend().name());
  }
  const Guard guard(*backend_);
  // Asked here: afterwards CUDA does not tell, and looking at a captured event ends the capture.
  const bool captured = is_capturing();
  backend_->check(backend_->driver().event_record(mine->handle(), handle_), "recording an event");
  mine->mark_recorded(captured);
}

void Stream::synchronize() {
  HostCalls* calls = existing_calls();
  try {
    refuse_capture("Stream::synchronize");
    const Guard guard(*backend_);
    backend_->check(backend_->driver().stream_synchronize(handle_), "synchronising a stream");
  } catch (const DeviceError&) {
    // Functions that wait for a failed stream are dropped: what they captured is free after this.
    if (calls != nullptr) calls->drain();
    throw;
  }
  if (calls != nullptr) {
    calls->drain();  // functions that do not hold the stream may still be on their way
    calls->rethrow();
  }
}

void Stream::drain() noexcept {
  const Guard guard(*backend_);
  Driver& driver = backend_->driver();
  // A wait would end a capture; what was enqueued before it is left to its owner. The legacy stream
  // fails to answer while another stream is captured.
  bool capturing = true;
  if (driver.stream_is_capturing(handle_, &capturing) != success) driver.last_error();
  if (!capturing && driver.stream_synchronize(handle_) != success) driver.last_error();
  if (HostCalls* calls = existing_calls()) calls->drain();
}

bool Stream::done() {
  refuse_capture("Stream::done");
  const Guard guard(*backend_);
  const Status status = backend_->driver().stream_query(handle_);
  if (status == not_ready) {
    backend_->driver().last_error();  // "not ready" must not look like the caller's failure
    return false;
  }
  backend_->check(status, "querying a stream");
  HostCalls* calls = existing_calls();
  return calls == nullptr || calls->idle();
}

void Stream::rethrow() {
  if (HostCalls* calls = existing_calls()) calls->rethrow();
}

void Stream::copy(MemoryView dst, MemoryView src) {
  backend_->check_alive();
  const Guard guard(*backend_);
  for (std::size_t begin = 0, part = 0; begin < src.bytes; begin += part) {
    std::byte* const to = dst.data + begin;
    const std::byte* const from = src.data + begin;
    part = detail::PieceBorders::before_next(from, src.bytes - begin);
    part = detail::PieceBorders::before_next(to, part);
    backend_->check(backend_->driver().copy(to, from, part, handle_), "enqueuing a copy");
  }
}

void Stream::fill(MemoryView dst, std::uint8_t value) {
  backend_->check_alive();
  const Guard guard(*backend_);
  for (std::size_t begin = 0, part = 0; begin < dst.bytes; begin += part) {
    part = detail::PieceBorders::before_next(dst.data + begin, dst.bytes - begin);
    backend_->check(backend_->driver().fill(dst.data + begin, value, part, handle_),
                    "enqueuing a fill");
  }
}

void Stream::wait_value(std::uint32_t* flag, std::uint32_t value) {
  refuse_capture("waiting for a flag");
  if (!backend_->properties().stream_wait_value) {
    return calls().enqueue(
        handle_,
        [flag, value](const std::exception_ptr& failure) {
          const detail::Pauses pauses;
          while (!failure && !detail::flag_reached(flag, value)) pauses.next();
        },
        true);
  }
  const Guard guard(*backend_);
  backend_->check(backend_->driver().stream_wait_value(handle_, flag, value),
                  "making a stream wait for a flag");
}

void Stream::write_value(std::uint32_t* flag, std::uint32_t value) {
  refuse_capture("writing a flag");
  if (!backend_->properties().stream_wait_value) {
    return calls().enqueue(
        handle_, [flag, value](const std::exception_ptr&) { detail::set_flag(flag, value); },
        false);
  }
  const Guard guard(*backend_);
  backend_->check(backend_->driver().stream_write_value(handle_, flag, value),
                  "making a stream write a flag");
}

}  // namespace ps::cuda
