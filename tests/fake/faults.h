// Which call is to fail, and with what.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "host/cuda/driver.h"

namespace ps::test {

using CallNames = std::set<std::string, std::less<>>;

// Every call that takes memory, streams, events or addresses from the device.
inline const CallNames allocating_calls = {"host_alloc",      "device_alloc",  "pool_alloc",
                                           "pool_create",     "stream_create", "event_create",
                                           "address_reserve", "memory_create", "memory_map"};

// Counts calls and pieces of work from 1, and says which of them fail. Not thread-safe.
class Faults {
 public:
  // The nth call from now, of those named (none named: of all), fails once with `status`.
  void fail_call(std::uint64_t n, cuda::Status status, CallNames names);
  // At the nth call from now the device is lost.
  void lose_device_at(std::uint64_t n, int device, cuda::Status status);
  // The nth piece of work enqueued from now fails when its turn comes, and the device with it.
  void fail_work(std::uint64_t n, cuda::Status status);
  void disarm();

  struct Verdict {
    cuda::Status status = cuda::success;
    std::optional<int> lost{};  // the device that is lost from now on
    cuda::Status lost_with = cuda::success;
  };
  Verdict on_call(std::string_view name);
  cuda::Status on_work();

  std::uint64_t calls() const { return calls_; }
  std::uint64_t calls(std::string_view name) const;
  // Whether a fault that was armed has struck.
  bool struck() const { return struck_; }

 private:
  struct Armed {
    std::uint64_t left = 0;  // 0: not armed
    cuda::Status status = cuda::success;
    CallNames names{};
    int device = 0;

    bool strikes() { return left != 0 && --left == 0; }
  };

  Armed call_, loss_, work_;
  bool struck_ = false;
  std::uint64_t calls_ = 0;
  std::map<std::string, std::uint64_t, std::less<>> by_name_;
};

}  // namespace ps::test
