// Calls that work on streams has not completed yet.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

namespace ps::detail {

// Thread-safe.
class CallsInFlight {
 public:
  explicit CallsInFlight(std::size_t most) : most_(most) {}

  // Blocks while there are `most` calls. The call ends when the last copy of the pointer is gone,
  // which must not outlive this object. Throws ExpertsClosed after close().
  std::shared_ptr<void> begin();
  void wait();   // for the calls that have begun so far
  void close();  // no call begins any more

 private:
  void end(std::uint64_t number) noexcept;

  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::uint64_t> numbers_;  // of the calls in flight
  std::uint64_t begun_ = 0;          // calls so far; the number of the last one
  bool closed_ = false;
};

}  // namespace ps::detail
