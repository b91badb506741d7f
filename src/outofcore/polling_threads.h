// Threads that divide loops among themselves, for loops that follow each other closely and must
// begin at once: waking a thread that sleeps takes as long as a short loop. They poll for a while
// after a loop or a call of wake(), then sleep; the threads of parallel_ranges() always sleep
// between loops.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ps::detail {

class PollingThreads {
 public:
  // How long threads poll when there is nothing to do.
  static constexpr std::int64_t poll_ns = 1'000'000;

  // `threads` include the one that calls ranges(). Throws std::system_error.
  explicit PollingThreads(std::size_t threads);
  ~PollingThreads();
  PollingThreads(const PollingThreads&) = delete;
  PollingThreads& operator=(const PollingThreads&) = delete;

  // As parallel_ranges(). Called by one thread at a time.
  void ranges(std::size_t count, std::size_t grain,
              const std::function<void(std::size_t begin, std::size_t end)>& work);

  // Says that a loop will follow soon. Any thread may call this.
  void wake() noexcept;

  // Between two looks of a thread that has polled since then. A thread that yields may lose its
  // core for milliseconds if another one wants it, so at first it does not, if there are enough
  // cores.
  void pause_since(std::int64_t busy_ns) const noexcept;

 private:
  struct Loop {
    std::size_t count = 0, grain = 1, threads = 1;
    const std::function<void(std::size_t, std::size_t)>* work = nullptr;
  };

  void run();
  void take_part() noexcept;
  std::size_t take_range(std::size_t& begin) noexcept;
  void end() noexcept;

  // Odd while a loop is open. Helpers count themselves in before they look whether it is, and the
  // loop's memory is not used again before all have left.
  std::atomic<std::uint32_t> phase_{0};
  std::atomic<std::uint32_t> inside_{0};
  Loop loop_;
  std::atomic<std::size_t> next_{0};
  std::mutex failing_;
  std::exception_ptr failure_;

  std::atomic<std::uint32_t> wakes_{0};
  std::atomic<bool> ending_{false};
  const bool has_cores_;
  std::vector<std::thread> helpers_;
};

}  // namespace ps::detail
