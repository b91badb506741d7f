// Runs kernels without a GPU: the threads of a block are fibers of one host thread, which run until
// they wait for others. Memory is what the kernel says it is, so AddressSanitizer sees every
// access.
//
// What it does not show: races that need two threads at the same instant, memory models, and speed.
// Blocks run one after the other, so blocks that wait for each other never end.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace ps::emulated {

constexpr unsigned warp_threads = 32;

// A point at which a number of threads wait for each other.
struct Meeting {
  unsigned arrived = 0;
  std::uint64_t passed = 0;  // how often all have come
};

// A copy of cp.async, which is made when the thread waits for it: a kernel that reads too early
// reads what was there before.
struct PendingCopy {
  void* to;
  const void* from;
  unsigned bytes, valid;
};

class Block;
struct Stack;

class Fiber {
 public:
  Fiber(unsigned number, const uint3& index);
  Fiber(Fiber&&) noexcept;
  ~Fiber();

  unsigned lane() const { return number_ % warp_threads; }
  std::vector<PendingCopy> copies;              // since the last commit
  std::deque<std::vector<PendingCopy>> groups;  // committed, the oldest first

 private:
  friend Block;

  static void enter();
  bool can_run() const { return !ended_ && (awaited_ == nullptr || *awaited_ != seen_); }

  unsigned number_;
  uint3 index_;  // threadIdx
  std::unique_ptr<Stack> stack_;
  void* stack_pointer_ = nullptr;
  void* sanitizers_ = nullptr;  // AddressSanitizer's own stack of this fiber, while it does not run
  bool ended_ = false;
  const std::uint64_t* awaited_ = nullptr;  // runs again when this is no longer `seen_`
  std::uint64_t seen_ = 0;
  std::string where_;
};

// The threads of one block while they run.
class Block {
 public:
  Block(const dim3& threads, const std::function<void()>& kernel, unsigned seed);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Returns when all threads have returned. Ends the program if the rest wait for ever.
  void run();

  // That of the caller, which is a thread of a kernel.
  static Block& current();
  Fiber& fiber() { return *running_; }

  // For the threads of the kernel: wait until `count` threads are at the meeting.
  void meet(Meeting& meeting, unsigned count, const char* where);
  void meet_all();  // all threads that have not returned
  void meet_in_warp(unsigned mask, const char* where);
  void arrive(Meeting& meeting, unsigned count);  // without waiting
  Meeting& named(unsigned number) { return named_[number]; }

  // A value of every lane of the warp, for the others to read between two meetings.
  template <class T>
  void show(const T& value) {
    static_assert(sizeof(T) <= sizeof(Warp::shown[0]));
    std::memcpy(warp().shown[fiber().lane()].data(), static_cast<const void*>(&value), sizeof(T));
  }
  template <class T>
  T shown_by(unsigned lane) {
    T value;
    std::memcpy(static_cast<void*>(&value), warp().shown[lane].data(), sizeof(T));
    return value;
  }

 private:
  friend Fiber;

  struct Warp {
    std::map<unsigned, Meeting> meetings;  // by mask
    std::array<std::array<std::byte, 64>, warp_threads> shown;
  };

  Warp& warp() { return warps_[fiber().number_ / warp_threads]; }
  void resume(Fiber& fiber);
  void suspend();  // the running fiber
  [[noreturn]] void report_deadlock() const;

  const std::function<void()>& kernel_;
  std::mt19937 random_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  unsigned left_;  // threads that have not returned
  Meeting all_;
  std::map<unsigned, Meeting> named_;
  Fiber* running_ = nullptr;
  void* scheduler_ = nullptr;  // its stack pointer while a fiber runs
  void* scheduler_sanitizers_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
};

// Runs `kernel` for every thread of every block, one block after the other.
void run_grid(const dim3& grid, const dim3& threads, const std::function<void()>& kernel);

// How many blocks have run in this program.
std::uint64_t blocks_run();

// The result of `choose`, for a value that every lane of the mask shows to the others.
template <class T, class Choose>
auto among_lanes(unsigned mask, const T& value, const char* where, const Choose& choose) {
  Block& block = Block::current();
  block.show(value);
  block.meet_in_warp(mask, where);
  auto result = choose(block);
  block.meet_in_warp(mask, where);  // before the next value is shown
  return result;
}

}  // namespace ps::emulated
