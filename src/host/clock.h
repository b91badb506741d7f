// The host's clocks.
#pragma once

#include <cstdint>
#include <ctime>

namespace ps::detail {

inline std::int64_t nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

inline std::int64_t now_ns() { return nanoseconds(CLOCK_MONOTONIC); }
inline std::int64_t thread_cpu_ns() { return nanoseconds(CLOCK_THREAD_CPUTIME_ID); }

// Sleeps about this long.
void pause_ns(std::int64_t nanoseconds);

}  // namespace ps::detail
