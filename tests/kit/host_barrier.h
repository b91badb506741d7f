// A barrier for kit/ring.h between threads of this process.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace ps::test {

class HostBarrier {
 public:
  void init(unsigned count) {
    count_ = count;
    state_.store(count * arrival);
  }

  void arrive() { arrive_expect(0); }
  void arrive_expect(unsigned bytes) { add(bytes - arrival); }
  void complete(unsigned bytes) { add(std::uint64_t{0} - bytes); }

  bool try_wait(unsigned parity) const {
    return (state_.load(std::memory_order_acquire) >> 63) != parity;
  }
  void wait(unsigned parity) const {
    while (!try_wait(parity)) std::this_thread::yield();
  }

 private:
  // One word: the phase's parity, arrivals to come, bytes to come.
  static constexpr std::uint64_t phase = std::uint64_t{1} << 63, arrival = std::uint64_t{1} << 32;

  void add(std::uint64_t difference) {
    std::uint64_t before = state_.load(std::memory_order_relaxed), after = 0;
    do {
      after = before + difference;
      if ((after & ~phase) == 0) after = (after ^ phase) + count_ * arrival;
    } while (!state_.compare_exchange_weak(before, after, std::memory_order_acq_rel));
  }

  std::atomic<std::uint64_t> state_{0};
  std::uint64_t count_ = 0;
};

}  // namespace ps::test
