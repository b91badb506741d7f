// A CUDA driver without a GPU. It runs device work on threads, asynchronously, and watches its
// caller: the stream of every call, the order of every access to memory, what is freed and when.
//
//   auto driver = std::make_shared<ps::test::FakeDriver>();
//   ps::detail::replace_driver(driver);
//   ... use ps::Device::cuda(0) ...
//   EXPECT_TRUE(driver->violations().empty());
//   EXPECT_EQ(driver->outstanding(), ps::test::Outstanding{});
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "fake/fake_options.h"
#include "fake/faults.h"
#include "host/cuda/driver.h"

namespace ps::test {

class Simulation;

// What was made and not yet destroyed.
struct Outstanding {
  std::size_t streams = 0, events = 0, pools = 0;
  std::size_t pinned = 0, device = 0, pool = 0;  // allocations
  std::size_t registered = 0;                    // ranges of the caller's memory
  std::size_t reservations = 0, memories = 0, mappings = 0;

  friend bool operator==(const Outstanding&, const Outstanding&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Outstanding& counts);
};

struct Bytes {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

class FakeDriver final : public cuda::Driver {
 public:
  explicit FakeDriver(FakeOptions options = {});
  ~FakeDriver() override;  // drops work that is still queued; never hangs

  // --- what was seen ---
  std::vector<std::string> violations() const;
  void forgive();  // forgets the violations seen, for a test that provoked them
  Outstanding outstanding() const;
  // Errors that a thread got and did not clear: the next check of the user's own would find them.
  std::vector<cuda::Status> uncleared_errors() const;
  std::uint64_t calls() const;
  std::uint64_t calls(std::string_view name) const;

  // --- faults, counted from 1 from now on ---
  // The nth call (of the functions named, or of all) fails with `status` and does nothing. Calls
  // that free, destroy or synchronise do their work nevertheless: there CUDA reports what failed
  // earlier.
  void fail_call(std::uint64_t n, cuda::Status status, CallNames names = {});
  // From the nth call on every call on `device` fails and its work is dropped.
  void lose_device_at(std::uint64_t n, int device = 0, cuda::Status status = illegal_address);
  // The nth copy, fill or kernel enqueued fails when its turn comes, and the device is lost.
  void fail_work(std::uint64_t n, cuda::Status status = illegal_address);
  void disarm();
  bool fault_struck() const;

  // --- streams that the library did not make ---
  // A stream of the caller's own; the library may use it but not destroy it.
  cuda::StreamHandle foreign_stream(int device = 0);
  // Allows a default stream (null, legacy, per-thread) to be used on this device; the per-thread
  // one from this thread only.
  void allow_stream(cuda::StreamHandle stream, int device = 0);
  // From now on the stream records into a graph: work is not run, and calls that wait are wrong.
  void set_capturing(cuda::StreamHandle stream, bool capturing);

  // --- work and accesses that the driver table does not know ---
  // A kernel on `stream` that reads and writes these bytes; `function` does it, on another thread.
  cuda::Status kernel(cuda::StreamHandle stream, std::vector<Bytes> reads,
                      std::vector<Bytes> writes, std::function<void()> function);
  // For a kernel: what comes after it comes so much later by the events' clock, and nobody waits.
  void pass(std::chrono::nanoseconds time);
  // The host touches memory that device work also touches.
  void host_read(const void* data, std::size_t bytes);
  void host_write(const void* data, std::size_t bytes);
  // Lets copies touch this pageable memory. Such a copy has completed when it returns.
  void allow_pageable(const void* data, std::size_t bytes);
  void forget_pageable(const void* data);

  // --- the driver table ---
  cuda::Status device_count(int* count) override;
  cuda::Status driver_version(int* version) override;
  cuda::Status runtime_version(int* version) override;
  cuda::Status properties(int device, cuda::Properties* result) override;
  cuda::Status memory_info(std::size_t* free, std::size_t* total) override;
  cuda::Status set_device(int device) override;
  cuda::Status get_device(int* device) override;
  cuda::Status isolate_thread() override;
  cuda::Status device_synchronize() override;

  cuda::Status last_error() override;
  const char* error_name(cuda::Status status) override;
  const char* error_meaning(cuda::Status status) override;

  cuda::Status stream_create(cuda::StreamHandle* stream, bool high_priority) override;
  cuda::Status stream_destroy(cuda::StreamHandle stream) override;
  cuda::Status stream_synchronize(cuda::StreamHandle stream) override;
  cuda::Status stream_query(cuda::StreamHandle stream) override;
  cuda::Status stream_wait_event(cuda::StreamHandle stream, cuda::EventHandle event) override;
  cuda::Status stream_is_capturing(cuda::StreamHandle stream, bool* capturing) override;
  cuda::Status launch_host(cuda::StreamHandle stream, cuda::HostFunction function,
                           void* data) override;
  cuda::Status stream_wait_value(cuda::StreamHandle stream, std::uint32_t* flag,
                                 std::uint32_t value) override;
  cuda::Status stream_write_value(cuda::StreamHandle stream, std::uint32_t* flag,
                                  std::uint32_t value) override;

  cuda::Status event_create(cuda::EventHandle* event, bool timing, bool blocking) override;
  cuda::Status event_destroy(cuda::EventHandle event) override;
  cuda::Status event_record(cuda::EventHandle event, cuda::StreamHandle stream) override;
  cuda::Status event_query(cuda::EventHandle event) override;
  cuda::Status event_synchronize(cuda::EventHandle event) override;
  cuda::Status event_elapsed_ms(float* milliseconds, cuda::EventHandle start,
                                cuda::EventHandle stop) override;

  cuda::Status copy(void* dst, const void* src, std::size_t bytes,
                    cuda::StreamHandle stream) override;
  cuda::Status fill(void* dst, int value, std::size_t bytes, cuda::StreamHandle stream) override;

  cuda::Status host_alloc(void** data, std::size_t bytes) override;
  cuda::Status host_free(void* data) override;
  cuda::Status host_register(void* data, std::size_t bytes) override;
  cuda::Status host_unregister(void* data) override;
  cuda::Status device_alloc(void** data, std::size_t bytes) override;
  cuda::Status device_free(void* data) override;

  cuda::Status pool_create(cuda::PoolHandle* pool, int device, std::size_t limit) override;
  cuda::Status pool_destroy(cuda::PoolHandle pool) override;
  cuda::Status pool_set_threshold(cuda::PoolHandle pool, std::uint64_t bytes) override;
  cuda::Status pool_trim(cuda::PoolHandle pool, std::size_t keep) override;
  cuda::Status pool_use(cuda::PoolHandle pool, cuda::PoolUse* use) override;
  cuda::Status pool_alloc(void** data, std::size_t bytes, cuda::PoolHandle pool,
                          cuda::StreamHandle stream) override;
  cuda::Status pool_free(void* data, cuda::StreamHandle stream) override;

  cuda::Status address_granularity(int device, std::size_t* bytes) override;
  cuda::Status address_reserve(void** address, std::size_t bytes) override;
  cuda::Status address_free(void* address, std::size_t bytes) override;
  cuda::Status memory_create(cuda::MemoryHandle* memory, std::size_t bytes, int device) override;
  cuda::Status memory_release(cuda::MemoryHandle memory) override;
  cuda::Status memory_map(void* address, std::size_t bytes, cuda::MemoryHandle memory,
                          int device) override;
  cuda::Status memory_unmap(void* address, std::size_t bytes) override;

 private:
  std::shared_ptr<Simulation> simulation_;
};

}  // namespace ps::test
