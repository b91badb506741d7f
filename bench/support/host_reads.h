// Threads that read host memory and do nothing else, beside other work.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "penstock/base/view.h"

namespace bench {

// Reads with the widest loads that the CPU has, until the object goes.
class HostReads {
 public:
  // `block(i)` is the memory of number i, from 0 on: more than the caches hold. Thread-safe.
  HostReads(std::size_t threads, std::function<ps::MemoryView(std::uint64_t)> block);
  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;
  ~HostReads();

  // That have been read so far.
  std::uint64_t bytes() const;

 private:
  struct alignas(64) Count {
    std::atomic<std::uint64_t> bytes{0};
  };

  std::function<ps::MemoryView(std::uint64_t)> block_;
  std::unique_ptr<Count[]> counts_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> ending_{false};
  std::vector<std::thread> threads_;
};

}  // namespace bench
