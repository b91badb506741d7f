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

// The sleeps between looks at something that is not done yet: short at first, and a small share of
// the wait when it is long, so that lateness stays in proportion and a long wait takes no CPU time.
class Pauses {
 public:
  void next() const { pause_ns(length_ns()); }
  std::int64_t length_ns() const;  // of the next sleep

 private:
  std::int64_t begin_ns_ = now_ns();
};

}  // namespace ps::detail
