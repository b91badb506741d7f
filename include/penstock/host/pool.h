// Stream-ordered device memory, as with cudaMallocAsync: allocating and freeing block neither the
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

// A release_threshold that keeps all memory in the pool.
inline constexpr std::size_t keep_all = std::numeric_limits<std::size_t>::max();

struct PoolOptions {
  // Bytes of free memory that the pool keeps when a stream or the device is synchronised.
  std::size_t release_threshold = keep_all;
  // The most bytes that the pool may reserve; 0: no limit but the device's memory.
  std::size_t limit = 0;
};

// Sizes in bytes; `_high` is the maximum so far.
struct PoolStatistics {
  std::size_t in_use = 0;
  std::size_t in_use_high = 0;
  std::size_t reserved = 0;
  std::size_t reserved_high = 0;
  std::size_t allocations = 0;  // since the pool was created
  std::size_t failures = 0;     // allocations that threw OutOfMemory
};

// A handle; copies refer to the same pool. Thread-safe.
class Pool {
 public:
  explicit Pool(const Device& device, PoolOptions options = {});

  // Memory that work enqueued on `stream` from now on may use, aligned to 256 bytes. Zero bytes
  // give a null view. At the pool's limit, `stream` may have to wait for memory that another stream
  // frees; the calling thread never waits. Throws OutOfMemory, after which the pool is still
  // usable, or DeviceError.
  MemoryView allocate(std::size_t bytes, const Stream& stream) const;

  // Frees the memory after the work enqueued on `stream` so far. A null view is ignored.
  void free(MemoryView memory, const Stream& stream) const noexcept;

  // Returns free memory to the device until at most `keep` bytes stay reserved. Memory passed to
  // free() counts as free when its stream has completed the work before.
  void trim(std::size_t keep = 0) const;

  PoolStatistics statistics() const;
  Device device() const;

 private:
  std::shared_ptr<detail::PoolImpl> impl_;
};

}  // namespace ps
