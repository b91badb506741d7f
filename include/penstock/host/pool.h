// Stream-ordered device memory: allocate and free are points in a stream, so neither stops the
// device nor the caller.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

namespace detail {
class PoolImpl;
}

inline constexpr std::size_t keep_all = std::numeric_limits<std::size_t>::max();

struct PoolOptions {
  // Free memory the pool holds on to when a stream or the device is synchronised; 0 gives all back.
  std::size_t release_threshold = keep_all;
  // Most the pool may reserve; 0: no limit but the device's.
  std::size_t limit = 0;
};

struct PoolStatistics {
  std::size_t in_use = 0;
  std::size_t in_use_high = 0;
  std::size_t reserved = 0;
  std::size_t reserved_high = 0;
  std::size_t allocations = 0;  // since the pool was made
  std::size_t failures = 0;     // requests that found no memory
};

// A handle; copies name the same pool. Thread-safe.
class Pool {
 public:
  explicit Pool(const Device& device, PoolOptions options = {});

  // Memory usable by work enqueued on `stream` from now on. 256-byte aligned. Zero bytes give a
  // null view. Throws OutOfMemory (the pool stays usable) or DeviceError.
  MemoryView allocate(std::size_t bytes, const Stream& stream) const;

  // The memory may be reused once everything enqueued on `stream` so far has completed. Never
  // throws; a null view is ignored.
  void free(MemoryView memory, const Stream& stream) const noexcept;

  // Gives free memory back to the device until at most `keep` bytes stay reserved. Memory freed in
  // stream order counts as free once the stream got there.
  void trim(std::size_t keep = 0) const;

  PoolStatistics statistics() const;
  Device device() const;

 private:
  std::shared_ptr<detail::PoolImpl> impl_;
};

}  // namespace ps
