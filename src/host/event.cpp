#include "penstock/host/event.h"

#include "host/backend.h"
#include "host/fork.h"

namespace ps {

Event::Event(const Device& device, EventOptions options)
    : impl_(device.backend().make_event(options)) {}

bool Event::done() const { return impl_->done(); }

void Event::synchronize() const {
  detail::refuse_after_fork();
  impl_->synchronize();
}

Device Event::device() const { return impl_->backend().device(); }

double Event::seconds_between(const Event& start, const Event& stop) {
  return stop.impl_->seconds_since(*start.impl_);
}

}  // namespace ps
