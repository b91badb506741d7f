// An ordered queue of work on a device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "penstock/base/view.h"
#include "penstock/host/device.h"
#include "penstock/host/event.h"

namespace ps {

namespace detail {
class StreamImpl;
}

enum class Priority : std::uint8_t { normal, high };

struct StreamOptions {
  Priority priority = Priority::normal;
};

// A handle; copies name the same stream. Owned streams are non-blocking: they never wait for the
// legacy default stream. When the last handle of an owned stream goes away, work already enqueued
// still completes. Member calls are thread-safe; the order between threads is the caller's matter.
class Stream {
 public:
  // A new stream. Throws DeviceError or OutOfMemory.
  explicit Stream(const Device& device, StreamOptions options = {});

  // Runs `function` when the work enqueued before it has completed; work enqueued after it waits
  // for it. It runs on a thread of the library, never inside a driver callback, so it may call
  // anything that does not wait for this very stream. An exception it throws is kept and thrown by
  // the next synchronize() of this stream.
  void call(std::function<void()> function) const;

  // As call(), but work enqueued later does not wait: the stream flows on. Functions of one stream
  // run in order.
  void notify(std::function<void()> function) const;

  // Everything enqueued from now on waits for the point `event` was last recorded at. Does not
  // block the calling thread. The event may belong to another stream or device.
  void wait(const Event& event) const;

  // Moves `event` to this point of the stream.
  void record(const Event& event) const;

  // Blocks until everything enqueued so far has completed, then throws what failed, if anything
  // did.
  void synchronize() const;

  // Whether everything enqueued so far has completed. Never blocks.
  bool done() const;

  Device device() const;
  bool owned() const;

  // The cudaStream_t on a GPU, null on the CPU. host/cuda.h gives it its type.
  void* native() const;

  detail::StreamImpl& impl() const { return *impl_; }
  explicit Stream(std::shared_ptr<detail::StreamImpl> impl) : impl_(std::move(impl)) {}

  friend bool operator==(const Stream& a, const Stream& b) { return a.impl_ == b.impl_; }

 private:
  std::shared_ptr<detail::StreamImpl> impl_;
};

// A stream that belongs to somebody else, by its native handle; host/cuda.h has the typed form.
Stream borrow_native(const Device& device, void* native);

struct CopyOptions {
  // A copy to or from pageable memory is staged by the driver and blocks the caller; it is refused
  // unless this says that the caller wants it.
  bool allow_pageable = false;
};

// Enqueues a copy of src to dst; both have the same size. Captureable into a CUDA graph.
// Throws InvalidArgument on unequal sizes, null data, foreign devices, or pageable memory on a GPU.
void copy(MemoryView dst, MemoryView src, const Stream& stream, CopyOptions options = {});

// Enqueues setting every byte of dst. Captureable.
void fill(MemoryView dst, std::uint8_t value, const Stream& stream);

}  // namespace ps
