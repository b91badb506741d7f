#include "host/cuda/event.h"

#include "penstock/base/error.h"

namespace ps::cuda {

bool Event::done() {
  backend_->check_alive();
  const Status status = backend_->driver().event_query(handle());
  if (status == not_ready) {
    backend_->driver().last_error();  // "not ready" must not look like the caller's failure
    return false;
  }
  backend_->check(status, "querying an event");
  return true;
}

void Event::synchronize() {
  backend_->check_alive();
  backend_->check(polled_ ? owner_.poll() : backend_->driver().event_synchronize(handle()),
                  "waiting for an event");
}

double Event::seconds_since(EventImpl& start) {
  auto* from = dynamic_cast<Event*>(&start);
  if (from == nullptr || from->backend_ != backend_) {
    detail::throw_invalid("start", "an event of " + backend_->name(),
                          "one of " + start.backend().name());
  }
  from->check_timed("start");
  check_timed("stop");
  float milliseconds = 0;
  backend_->check(backend_->driver().event_elapsed_ms(&milliseconds, from->handle(), handle()),
                  "reading the time between events");
  return static_cast<double>(milliseconds) * 1e-3;
}

void Event::check_timed(const char* argument) {
  if (!timing_) detail::throw_invalid(argument, "an event made with timing", "one without");
  if (!recorded_ || !done()) {
    detail::throw_invalid(argument, "an event that was recorded and reached",
                          recorded_ ? "one still pending" : "one never recorded");
  }
}

}  // namespace ps::cuda
