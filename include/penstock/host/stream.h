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

// A handle; copies refer to the same stream. Streams made here are non-blocking: they do not
// synchronise with the legacy default stream. When the last handle is destroyed, work already
// enqueued still completes. Thread-safe; the order of calls from different threads is unspecified.
class Stream {
 public:
  // A new stream. Throws DeviceError or OutOfMemory.
  explicit Stream(const Device& device, StreamOptions options = {});

  // Enqueues a host function: it runs after the work enqueued before it, and work enqueued after it
  // waits for it. It runs on a thread of the library, not in a driver callback, so it may call CUDA
  // and anything else that does not wait for this stream. If it throws, the next synchronize() of
  // this stream rethrows the exception. Throws Unsupported while the stream is being captured, and
  // DeviceError if the function cannot be enqueued; the function then does not run.
  void call(std::function<void()> function) const;

  // As call(), but work enqueued later does not wait for the function. Functions of one stream run
  // in order.
  void notify(std::function<void()> function) const;

  // Makes work enqueued from now on wait for the point where `event` was last recorded, on this or
  // another stream or device. Does not block the calling thread.
  void wait(const Event& event) const;

  // Records `event` after the work enqueued so far.
  void record(const Event& event) const;

  // Blocks until the work enqueued so far has completed. Throws its first error.
  void synchronize() const;

  // Whether the work enqueued so far has completed. Never blocks.
  bool done() const;

  Device device() const;
  bool owned() const;  // false for a borrowed stream

  // The cudaStream_t, or null on the CPU; cuda_stream() in host/cuda.h returns it typed.
  void* native() const;

  detail::StreamImpl& impl() const { return *impl_; }
  explicit Stream(std::shared_ptr<detail::StreamImpl> impl) : impl_(std::move(impl)) {}

  friend bool operator==(const Stream& a, const Stream& b) { return a.impl_ == b.impl_; }

 private:
  std::shared_ptr<detail::StreamImpl> impl_;
};

// Wraps a stream that the caller owns, by its native handle. The caller keeps the stream alive as
// long as any object of the library that it was passed to. Use borrow() of
// host/cuda.h for a cudaStream_t.
Stream borrow_native(const Device& device, void* native);

struct CopyOptions {
  // Allows pageable memory. The driver then copies through its own buffers and blocks the caller.
  bool allow_pageable = false;
};

// Enqueues a copy of `src` to `dst`. May be captured. Throws InvalidArgument for unequal sizes,
// null data, memory of another device, and pageable memory on a GPU unless `allow_pageable`.
void copy(MemoryView dst, MemoryView src, const Stream& stream, CopyOptions options = {});

// Enqueues setting every byte of `dst` to `value`. May be captured.
void fill(MemoryView dst, std::uint8_t value, const Stream& stream);

}  // namespace ps
