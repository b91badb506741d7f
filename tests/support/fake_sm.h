// A GPU's clocks without a GPU: multiprocessors whose clocks run at rates and from starts of their
// own, and the coarse timer that they share. Blocks written through the kit's own writing side.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "penstock/kit/trace.h"

namespace ps::test {

struct FakeSm {
  unsigned number = 0;
  double ghz = 1.7;                      // its clock's rate
  std::uint64_t offset = 1'000'000'000;  // its clock when the timer says `epoch`
};

struct FakeTimer {
  static constexpr std::uint64_t epoch = 1'700'000'000'000'000'000;
  double tick_ns = 1000;  // 0: it stands still
  double look_ns = 25;    // what a look at any clock takes, give or take a half
  double held_up_ns = 0;  // what one in twenty looks takes more
};

// One thread's view of time. A look at a clock lets time pass.
class FakeSource {
 public:
  struct Thread {
    FakeSm sm;
    FakeTimer timer;
    double ns = 0;  // since the epoch
    std::mt19937 random{1};
    unsigned block = 0, blocks = 1;
  };

  explicit FakeSource(Thread* thread = nullptr) : thread_(thread) {}

  std::uint64_t now() const {
    pass();
    return thread_->sm.offset +
           static_cast<std::uint64_t>(std::llround(thread_->ns * thread_->sm.ghz));
  }
  std::uint64_t nanoseconds() const {
    pass();
    const double tick = thread_->timer.tick_ns;
    const double shown = tick > 0 ? std::floor(thread_->ns / tick) * tick : 0;
    return FakeTimer::epoch + static_cast<std::uint64_t>(shown);
  }
  unsigned sm() const { return thread_->sm.number; }
  std::uint64_t block() const { return thread_->block; }
  std::uint64_t blocks() const { return thread_->blocks; }
  static void store(KernelTraceRecord* to, const KernelTraceRecord& record) { *to = record; }

 private:
  void pass() const {
    std::uniform_real_distribution<double> share(0.5, 1.5);
    thread_->ns += thread_->timer.look_ns * share(thread_->random);
    if (thread_->timer.held_up_ns > 0 && thread_->random() % 20 == 0) {
      thread_->ns += thread_->timer.held_up_ns;
    }
  }

  Thread* thread_;
};

// A buffer that simulated blocks write to.
class FakeTrace {
 public:
  using Block = kit::BlockTrace<true, FakeSource>;

  explicit FakeTrace(const kit::TraceShape& shape)
      : memory_(kit::trace_bytes(shape) / sizeof(KernelTraceRecord)),
        buffer_(memory_.data(), shape) {}

  // Runs a block: `work` gets its trace and its thread, whose `ns` it moves on.
  void run(FakeSource::Thread thread, const std::function<void(Block&, FakeSource::Thread&)>& work,
           bool ends = true) {
    Block block(buffer_, FakeSource(&thread));
    block.begin(true);
    work(block, thread);
    if (ends) block.end(true);
  }

  std::vector<std::byte> bytes() const {
    const auto* const data = reinterpret_cast<const std::byte*>(memory_.data());
    return {data, data + memory_.size() * sizeof(KernelTraceRecord)};
  }

  const kit::TraceBuffer<true>& buffer() const { return buffer_; }

 private:
  std::vector<KernelTraceRecord> memory_;  // aligned, and zero
  kit::TraceBuffer<true> buffer_;
};

}  // namespace ps::test
