#include "host/clock.h"

#include <sys/prctl.h>

#include <algorithm>

namespace ps::detail {

void pause_ns(std::int64_t nanoseconds) {
  // Without this the system adds 50 us to every sleep of a thread.
  thread_local const int slack = prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  static_cast<void>(slack);
  const timespec time{.tv_sec = 0, .tv_nsec = nanoseconds};
  nanosleep(&time, nullptr);
}

std::int64_t Pauses::length_ns() const {
  constexpr std::int64_t share = 50, shortest = 20'000, longest = 1'000'000;
  return std::clamp((now_ns() - begin_ns_) / share, shortest, longest);
}

}  // namespace ps::detail
