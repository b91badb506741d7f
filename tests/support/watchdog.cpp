#include "support/watchdog.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace ps::test {

Watchdog::Watchdog(std::string what, std::chrono::seconds limit)
    : limit_(limit),
      what_(std::move(what)),
      deadline_(std::chrono::steady_clock::now() + limit),
      thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::step(std::string what) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
  deadline_ = std::chrono::steady_clock::now() + limit_;
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    if (std::chrono::steady_clock::now() >= deadline_) {
      std::fprintf(stderr, "watchdog: hung in %s\n", what_.c_str());
      std::fflush(stderr);
      std::abort();
    }
    changed_.wait_until(lock, deadline_);
  }
}

}  // namespace ps::test
