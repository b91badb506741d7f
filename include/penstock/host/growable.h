// A device buffer that grows without moving: a range of addresses is reserved once, pages are
// mapped behind it as it grows. Made for caches that lengthen with every step.
#pragma once

#include <cstddef>
#include <memory>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

struct GrowableOptions {
  std::size_t capacity = 0;  // most bytes it may ever hold: addresses, not memory
  std::size_t initial = 0;   // bytes usable at once
};

// Move-only. Not thread-safe.
class GrowableBuffer {
 public:
  // Throws InvalidArgument, OutOfMemory, or Unsupported where the device cannot map memory.
  GrowableBuffer(const Device& device, GrowableOptions options);
  // Waits for the streams it grew on, then unmaps.
  ~GrowableBuffer();
  GrowableBuffer(GrowableBuffer&&) noexcept;
  GrowableBuffer& operator=(GrowableBuffer&&) noexcept;

  // At least `bytes` are usable by work enqueued on `stream` from now on; the address and the bytes
  // already there stay. Never waits for the device. Throws InvalidArgument past the capacity,
  // OutOfMemory when pages run out: the buffer then stays as it was.
  void grow(std::size_t bytes, const Stream& stream);

  MemoryView view() const;     // the bytes asked for so far
  std::size_t mapped() const;  // the same, rounded up to pages
  std::size_t capacity() const;
  std::size_t page() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ps
