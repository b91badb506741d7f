#include "host/cpu/stream.h"

#include <cstring>
#include <thread>
#include <utility>

#include "host/clock.h"
#include "host/flag.h"
#include "penstock/base/error.h"

namespace ps::cpu {
namespace {

// Keeps the event alive until the task has run.
std::shared_ptr<Event> own(detail::EventImpl& event) {
  auto* mine = dynamic_cast<Event*>(&event);
  if (mine == nullptr) {
    detail::throw_invalid("event", "an event of the CPU", "one of another device");
  }
  return std::static_pointer_cast<Event>(mine->shared_from_this());
}

}  // namespace

void Stream::call(detail::StreamFunction function) {
  worker_.post([function = std::move(function), error = error_] {
    try {
      function(nullptr);
    } catch (...) {
      error->set(std::current_exception());
    }
  });
}

// A worker has one thread: what does not hold the stream back would need a second one, and gains
// nothing where the stream itself is host work.
void Stream::notify(detail::StreamFunction function) { call(std::move(function)); }

void Stream::wait(detail::EventImpl& event) {
  auto mine = own(event);
  worker_.post([mine, mark = mine->last_mark()] { mine->wait_for(mark); });
}

void Stream::record(detail::EventImpl& event) {
  auto mine = own(event);
  worker_.post([mine, mark = mine->next_mark()] { mine->reach(mark); });
}

void Stream::synchronize() {
  worker_.drain();
  error_->rethrow();
}

void Stream::copy(MemoryView dst, MemoryView src) {
  worker_.post(
      [to = dst.data, from = src.data, bytes = src.bytes] { std::memmove(to, from, bytes); });
}

void Stream::fill(MemoryView dst, std::uint8_t value) {
  worker_.post([to = dst.data, bytes = dst.bytes, value] { std::memset(to, value, bytes); });
}

void Stream::wait_value(std::uint32_t* flag, std::uint32_t value) {
  worker_.post([flag, value] {
    for (int look = 0; look < 100; ++look) {
      if (detail::flag_reached(flag, value)) return;
      std::this_thread::yield();
    }
    const detail::Pauses pauses;
    while (!detail::flag_reached(flag, value)) pauses.next();
  });
}

void Stream::write_value(std::uint32_t* flag, std::uint32_t value) {
  worker_.post([flag, value] { detail::set_flag(flag, value); });
}

}  // namespace ps::cpu
