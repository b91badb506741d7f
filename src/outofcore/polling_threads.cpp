#include "outofcore/polling_threads.h"

#include <algorithm>
#include <utility>

#include "host/clock.h"
#include "penstock/base/checked.h"
#include "penstock/host/parallel.h"

namespace ps::detail {

// The threads that use this object need some cores, too.
PollingThreads::PollingThreads(std::size_t threads)
    : has_cores_(threads + 3 <= parallel_threads()) {
  try {
    for (std::size_t i = 1; i < threads; ++i) helpers_.emplace_back([this] { run(); });
  } catch (...) {
    end();
    throw;
  }
}

PollingThreads::~PollingThreads() { end(); }

void PollingThreads::end() noexcept {
  ending_ = true;
  wake();
  for (std::thread& helper : helpers_) helper.join();
}

void PollingThreads::pause_since(std::int64_t busy_ns) const noexcept {
  if (!has_cores_ || now_ns() - busy_ns > 100'000) return std::this_thread::yield();
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void PollingThreads::wake() noexcept {
  wakes_.fetch_add(1);
  wakes_.notify_all();
}

void PollingThreads::run() {
  std::uint32_t done = 0;  // the phase of the last loop that this thread took part in
  std::int64_t busy = now_ns();
  std::uint32_t wakes = wakes_.load();
  while (!ending_) {
    if (const std::uint32_t now = wakes_.load(); now != wakes) {
      wakes = now;
      busy = now_ns();
    }
    const std::uint32_t phase = phase_.load();
    if (phase % 2 == 1 && phase != done) {
      inside_.fetch_add(1);
      // The loop may be another one by now, or over.
      done = phase_.load();
      if (done % 2 == 1) take_part();
      inside_.fetch_sub(1);
      busy = now_ns();
    } else if (now_ns() - busy < poll_ns) {
      pause_since(busy);
    } else {
      wakes_.wait(wakes);
    }
  }
}

// The next range: large at first, because a range has a fixed cost, and small at the end, so that
// all threads end together.
std::size_t PollingThreads::take_range(std::size_t& begin) noexcept {
  begin = next_.load();
  while (begin < loop_.count) {
    const std::size_t left = ceil_div(loop_.count - begin, loop_.grain);
    const std::size_t length = std::min(
        std::max<std::size_t>(left / (2 * loop_.threads), 1) * loop_.grain, loop_.count - begin);
    if (next_.compare_exchange_weak(begin, begin + length)) return length;
  }
  return 0;
}

void PollingThreads::take_part() noexcept {
  std::size_t begin = 0;
  for (std::size_t length = take_range(begin); length > 0; length = take_range(begin)) {
    try {
      (*loop_.work)(begin, begin + length);
    } catch (...) {
      next_ = loop_.count;
      const std::lock_guard lock(failing_);
      if (!failure_) failure_ = std::current_exception();
    }
  }
}

void PollingThreads::ranges(std::size_t count, std::size_t grain,
                            const std::function<void(std::size_t, std::size_t)>& work) {
  if (count == 0) return;
  if (helpers_.empty() || count <= grain) return work(0, count);
  loop_ = {.count = count, .grain = grain, .threads = helpers_.size() + 1, .work = &work};
  next_ = 0;
  ++phase_;
  wake();
  take_part();
  ++phase_;
  while (inside_ != 0) std::this_thread::yield();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace ps::detail
