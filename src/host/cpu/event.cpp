#include "host/cpu/event.h"

#include "penstock/base/error.h"

namespace ps::cpu {

std::uint64_t Event::next_mark() {
  const std::lock_guard lock(mutex_);
  return ++recorded_;
}

std::uint64_t Event::last_mark() {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

void Event::reach(std::uint64_t mark) {
  const std::lock_guard lock(mutex_);
  // Two streams may record the same event; the later call is the one that counts.
  if (mark <= reached_) return;
  reached_ = mark;
  if (timing_) when_ = std::chrono::steady_clock::now();
  reached_changed_.notify_all();
}

void Event::wait_for(std::uint64_t mark) {
  std::unique_lock lock(mutex_);
  reached_changed_.wait(lock, [&] { return reached_ >= mark; });
}

bool Event::done() {
  const std::lock_guard lock(mutex_);
  return reached_ == recorded_;
}

void Event::synchronize() { wait_for(last_mark()); }

double Event::seconds_since(EventImpl& start) {
  auto* from = dynamic_cast<Event*>(&start);
  if (from == nullptr)
    detail::throw_invalid("start", "an event of the CPU", "one of another device");
  const auto time_of = [](Event& event, const char* argument) {
    const std::lock_guard lock(event.mutex_);
    if (!event.timing_) detail::throw_invalid(argument, "an event made with timing", "one without");
    if (event.recorded_ == 0 || event.reached_ != event.recorded_) {
      detail::throw_invalid(argument, "an event that was recorded and reached",
                            event.recorded_ == 0 ? "one never recorded" : "one still pending");
    }
    return event.when_;
  };
  const auto begin = time_of(*from, "start");
  const auto end = time_of(*this, "stop");
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace ps::cpu
