// The fake machine: streams as queues, each worked off by a thread of its own, later than the call
// and after small random delays, so that what is not waited for is not there yet.
#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "fake/address_space.h"
#include "fake/clock.h"
#include "fake/fake_options.h"
#include "fake/faults.h"
#include "fake/ledger.h"
#include "fake/pool.h"

namespace ps::test {

struct FakeStream;

using Time = std::chrono::steady_clock::time_point;

// A point of a stream, as an event remembers it.
struct Point {
  std::shared_ptr<FakeStream> stream;
  Tick tick = 0;
  Clock clock{};
  std::shared_ptr<std::optional<Time>> reached_at;
};

// What a stream does when its turn comes.
struct MemoryWork {
  std::function<void()> run{};  // without the lock
  cuda::Status failure = cuda::success;
};
struct HostFunctionWork {
  cuda::HostFunction function;
  void* data;
  Clock clock;
};
struct EventWork {
  Point point;
};
struct FlagWork {
  HostGate gate;
};
struct WriteFlagWork {
  std::uint32_t* flag;
  std::uint32_t value;
};
struct Mark {};

struct Work {
  Tick tick = 0;  // complete when the stream got here
  std::variant<Mark, MemoryWork, HostFunctionWork, EventWork, FlagWork, WriteFlagWork> body{};
  std::function<void()> finished{};  // with the lock, also when the work was dropped
};

struct FakeStream {
  StreamNumber number = 0;
  int device = 0;
  bool owned = true;  // made by stream_create(), so it must be destroyed
  bool destroyed = false;
  bool capturing = false;
  bool touching_memory = false;
  Clock clock{};
  Tick enqueued = 0, completed = 0;
  std::deque<Work> queue{};
  std::condition_variable arrived{};
  std::minstd_rand random{};

  std::string name() const { return "stream " + std::to_string(number); }
};

// What a default stream's handle means depends on the current device and, for the per-thread one,
// on the calling thread.
struct DefaultStream {
  cuda::StreamHandle handle = nullptr;
  int device = 0;
  std::thread::id thread{};

  static bool is(cuda::StreamHandle handle) {
    return handle == nullptr || handle == cuda::legacy_stream || handle == cuda::per_thread_stream;
  }
  static DefaultStream here(cuda::StreamHandle handle, int device) {
    const bool per_thread = handle == cuda::per_thread_stream;
    return {handle, device, per_thread ? std::this_thread::get_id() : std::thread::id()};
  }
  friend auto operator<=>(const DefaultStream&, const DefaultStream&) = default;
};

struct FakeEvent {
  int device = 0;
  bool timing = false;
  bool captured = false;
  Point point{};
};

struct FakeDevice {
  Budget memory{};
  cuda::Status lost = cuda::success;  // what every call answers once the device is lost
};

// What the driver keeps for each calling thread.
struct CallerState {
  int device = 0;
  cuda::Status last_error = cuda::success;
};

// Members are guarded by `mutex`; functions that take a lock want it held.
class Simulation : public std::enable_shared_from_this<Simulation> {
 public:
  using Lock = std::unique_lock<std::mutex>;

  explicit Simulation(FakeOptions fake_options);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // By the events' clock.
  Time now() const { return std::chrono::steady_clock::now() + std::chrono::nanoseconds(passed); }

  // Ends every stream, dropping its work. Waits for host functions that are running, but not for
  // ever, and not for one that calls this.
  void close();

  std::shared_ptr<FakeStream> start_stream(int device, bool owned);
  // Enqueues work and moves the stream's clock to it. Ticks of host functions come in pairs: their
  // beginning and their end.
  Tick enqueue(FakeStream& stream, Work work, Tick ticks = 1);
  // The operation that the next enqueue() will be.
  Operation next_operation(const FakeStream& stream, const char* call) const;
  // Blocks until the stream got there, its device is lost, or everything closes.
  void wait_for(Lock& lock, const FakeStream& stream, Tick tick);
  bool reached(const FakeStream& stream, Tick tick) const;

  void lose(int device, cuda::Status status);
  // Blocks until no stream of a lost device touches memory any more.
  void settle(Lock& lock);
  void violation(std::string text) { violations.push_back(std::move(text)); }

  // This thread's state; never to be used by another.
  CallerState& caller();
  bool inside_host_function() const;

  const FakeOptions options;
  std::atomic<std::chrono::nanoseconds::rep> passed{0};  // that nobody waited for
  mutable std::mutex mutex;
  std::condition_variable changed;  // something completed, was lost, or closes
  bool closing = false;
  int threads = 0;

  HostClock host;
  Ledger ledger{host};
  Faults faults;
  AddressSpace addresses;
  Budget pinned;
  std::vector<FakeDevice> devices;
  std::vector<std::string> violations;
  std::vector<std::shared_ptr<CallerState>> callers;

  std::vector<std::shared_ptr<FakeStream>> streams;  // by number, also destroyed ones
  std::map<cuda::StreamHandle, std::shared_ptr<FakeStream>> stream_handles;
  std::map<DefaultStream, std::shared_ptr<FakeStream>> default_streams;  // those allowed
  std::map<cuda::EventHandle, FakeEvent> events;
  std::map<cuda::PoolHandle, std::shared_ptr<FakePool>> pools;
  std::map<void*, std::shared_ptr<FakePool>> pool_memory;  // live blocks
  std::set<void*> heap;  // page-locked and device memory, also what was freed while in use
  void* make_handle() { return reinterpret_cast<void*>(next_handle_ += 16); }

 private:
  void loop(FakeStream& stream);
  void run(Lock& lock, FakeStream& stream, Work& work);
  void run_memory(Lock& lock, FakeStream& stream, MemoryWork& work);
  void run_host_function(Lock& lock, FakeStream& stream, Tick tick, HostFunctionWork& work);
  void wait_for_flag(Lock& lock, FakeStream& stream, const HostGate& gate);
  void delay(Lock& lock, FakeStream& stream);
  bool stopped(const FakeStream& stream) const {
    return closing || devices[static_cast<std::size_t>(stream.device)].lost != cuda::success;
  }

  std::uintptr_t next_handle_ = 0x1000;
  const std::uint64_t serial_;  // tells apart simulations that had the same address
};

}  // namespace ps::test
