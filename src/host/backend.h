// What a backend must provide. The public handles of penstock/host hold these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "host/failure.h"
#include "penstock/base/view.h"
#include "penstock/host/device.h"
#include "penstock/host/event.h"
#include "penstock/host/pool.h"
#include "penstock/host/stream.h"

namespace ps::detail {

class EventImpl : public std::enable_shared_from_this<EventImpl> {
 public:
  EventImpl() = default;
  EventImpl(const EventImpl&) = delete;
  EventImpl& operator=(const EventImpl&) = delete;
  virtual ~EventImpl() = default;
  virtual bool done() = 0;
  virtual void synchronize() = 0;
  virtual double seconds_since(EventImpl& start) = 0;
  virtual Backend& backend() = 0;
};

class StreamImpl : public std::enable_shared_from_this<StreamImpl> {
 public:
  StreamImpl() = default;
  StreamImpl(const StreamImpl&) = delete;
  StreamImpl& operator=(const StreamImpl&) = delete;
  virtual ~StreamImpl() = default;
  virtual void call(StreamFunction function) = 0;
  virtual void notify(StreamFunction function) = 0;
  virtual void wait(EventImpl& event) = 0;
  virtual void record(EventImpl& event) = 0;
  virtual void synchronize() = 0;
  // As synchronize(), for destructors: what failed stays for the stream's owner to learn.
  virtual void drain() noexcept = 0;
  virtual bool done() = 0;
  // Throws Unsupported, naming the operation, while the stream is being captured into a graph.
  virtual void refuse_capture(const char* operation) = 0;
  // Throws the first exception of a host function that has run, once; waits for nothing.
  virtual void rethrow() = 0;
  virtual void copy(MemoryView dst, MemoryView src) = 0;
  virtual void fill(MemoryView dst, std::uint8_t value) = 0;
  // Work enqueued from now on waits until *flag >= value (wrapping compare). A stream that has
  // passed the flag sees what was written before the flag was set. The flag is page-locked memory.
  virtual void wait_value(std::uint32_t* flag, std::uint32_t value) = 0;
  // Sets *flag after the work enqueued so far.
  virtual void write_value(std::uint32_t* flag, std::uint32_t value) = 0;
  virtual bool owned() const = 0;
  virtual void* native() const = 0;
  virtual Backend& backend() = 0;
};

// A number in page-locked memory that streams of GPUs wait for and write. It only grows, and may
// wrap around: a stream that waits for `value` goes on when the number is at most 2^31 - 1 more.
class SignalImpl {
 public:
  SignalImpl() = default;
  SignalImpl(const SignalImpl&) = delete;
  SignalImpl& operator=(const SignalImpl&) = delete;
  virtual ~SignalImpl() = default;              // blocks until no stream waits for it any more
  virtual bool serves(StreamImpl& stream) = 0;  // whether this stream can wait for it
  virtual void wait(StreamImpl& stream, std::uint32_t value) = 0;
  // The caller waits for this stream before the signal is destroyed.
  virtual void write(StreamImpl& stream, std::uint32_t value) = 0;
  // By the host. A larger number stays, except for one that a stream writes at the same moment.
  virtual void raise(std::uint32_t value) noexcept = 0;
};

class PoolImpl {
 public:
  PoolImpl() = default;
  PoolImpl(const PoolImpl&) = delete;
  PoolImpl& operator=(const PoolImpl&) = delete;
  virtual ~PoolImpl() = default;
  virtual void* allocate(std::size_t bytes, StreamImpl& stream) = 0;
  virtual void free(void* data, std::size_t bytes, StreamImpl& stream) noexcept = 0;
  virtual void trim(std::size_t keep) = 0;
  virtual PoolStatistics statistics() = 0;
  virtual Backend& backend() = 0;
};

// A reserved range of addresses with memory behind parts of it. Not thread-safe.
class AddressRangeImpl {
 public:
  AddressRangeImpl() = default;
  AddressRangeImpl(const AddressRangeImpl&) = delete;
  AddressRangeImpl& operator=(const AddressRangeImpl&) = delete;
  virtual ~AddressRangeImpl() = default;
  // Both are multiples of page(), and nothing is mapped there yet. Strong guarantee.
  virtual void map(std::size_t offset, std::size_t bytes) = 0;
  // What one call of map() has mapped, and no work uses any more. May wait for the device.
  virtual void unmap(std::size_t offset, std::size_t bytes) noexcept = 0;
  virtual std::byte* data() const = 0;
  virtual std::size_t capacity() const = 0;
  virtual std::size_t page() const = 0;
  virtual Backend& backend() = 0;
};

// Makes this thread's CUDA calls go to a device, and puts back what was there before.
class Current {
 public:
  virtual ~Current() = default;
};

class Backend : public std::enable_shared_from_this<Backend> {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual DeviceKind kind() const = 0;
  virtual int index() const = 0;
  virtual Capabilities capabilities() = 0;
  virtual void synchronize() = 0;
  // Waits for the work of every stream, also of those whose last handle is gone; reports nothing.
  virtual void drain() noexcept = 0;

  virtual std::shared_ptr<EventImpl> make_event(const EventOptions& options) = 0;
  virtual std::shared_ptr<StreamImpl> make_stream(const StreamOptions& options) = 0;
  virtual std::shared_ptr<StreamImpl> borrow_stream(void* native) = 0;
  virtual std::shared_ptr<PoolImpl> make_pool(const PoolOptions& options) = 0;
  virtual std::unique_ptr<AddressRangeImpl> make_address_range(std::size_t capacity) = 0;
  // Null where streams cannot wait for memory.
  virtual std::unique_ptr<SignalImpl> make_signal(std::uint32_t value) = 0;

  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(void* data, std::size_t bytes) noexcept = 0;
  // Page-locks memory in place, and ends that. Addresses and sizes are multiples of a page.
  virtual void lock_pages(void* data, std::size_t bytes) = 0;
  virtual void unlock_pages(void* data) noexcept = 0;
  virtual void* allocate_device(std::size_t bytes) = 0;
  virtual void free_device(void* data, std::size_t bytes) noexcept = 0;

  // To be called first by every thread of the library that uses the device.
  virtual void enter_thread() = 0;

  // Kernels launched by this thread until the result is destroyed go to this device.
  virtual std::unique_ptr<Current> make_current() = 0;

  // Memory, streams, events and pools made so far: a run in steady state adds none.
  virtual std::uint64_t allocations() const = 0;

  Device device() { return Device(shared_from_this()); }
  std::string name() const;
  Place place() const { return {Memory::device, index()}; }
};

}  // namespace ps::detail
