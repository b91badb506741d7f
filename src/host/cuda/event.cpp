#include "host/cuda/event.h"

#include <fmt/format.h>

#include "penstock/base/error.h"

namespace ps::cuda {
namespace {

// cudaErrorStreamCaptureUnsupported to cudaErrorStreamCaptureWrongThread.
bool is_capture_error(Status status) { return status >= 900 && status <= 908; }

}  // namespace

void Event::refuse_captured(const char* operation) {
  if (!captured_) return;
  throw Unsupported(
      fmt::format("{}: the event was last recorded while its stream was being captured into a CUDA "
                  "graph, so it has no point in time; record it again outside the capture",
                  operation));
}

void Event::check(Status status, const char* operation, const char* call) {
  if (is_capture_error(status)) {
    const std::string name = backend_->driver().error_name(status);
    backend_->driver().last_error();
    throw Unsupported(
        fmt::format("{}: CUDA forbids it during a stream capture ({}); end the capture first, or "
                    "begin it with cudaStreamCaptureModeRelaxed",
                    operation, name));
  }
  backend_->check(status, call);
}

bool Event::done() {
  backend_->check_alive();
  refuse_captured("Event::done");
  const Status status = backend_->driver().event_query(handle());
  if (status == not_ready) {
    backend_->driver().last_error();  // "not ready" must not look like the caller's failure
    return false;
  }
  check(status, "Event::done", "querying an event");
  return true;
}

void Event::synchronize() {
  backend_->check_alive();
  refuse_captured("Event::synchronize");
  check(polled_ ? owner_.poll() : backend_->driver().event_synchronize(handle()),
        "Event::synchronize", "waiting for an event");
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
