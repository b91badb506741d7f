// A device buffer that grows in place: addresses are reserved once, and physical pages are mapped
// as it grows. For example for a key-value cache.
#pragma once

#include <cstddef>
#include <memory>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

struct GrowableOptions {
  std::size_t capacity = 0;  // bytes of addresses to reserve; they take no memory
  std::size_t initial = 0;   // bytes mapped by the constructor
};

// Move-only. Not thread-safe.
class GrowableBuffer {
 public:
  // Throws InvalidArgument, OutOfMemory, or Unsupported if the device has no virtual memory
  // management.
  GrowableBuffer(const Device& device, GrowableOptions options);
  // Waits for the streams that were passed to grow(), then unmaps. The buffer does not keep these
  // streams alive: if a stream of the library is gone, the destructor waits for all work on the
  // device; a borrowed stream must outlive the buffer.
  ~GrowableBuffer();
  GrowableBuffer(GrowableBuffer&&) noexcept;
  GrowableBuffer& operator=(GrowableBuffer&&) noexcept;

  // Makes at least `bytes` usable by work enqueued on `stream` from now on. The address and the
  // contents stay. Never waits for the device. Throws InvalidArgument beyond the capacity, and
  // OutOfMemory if no pages are left; the buffer is then unchanged.
  void grow(std::size_t bytes, const Stream& stream);

  MemoryView view() const;     // the bytes requested so far
  std::size_t mapped() const;  // the same, rounded up to pages
  std::size_t capacity() const;
  std::size_t page() const;  // bytes of one page

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ps
