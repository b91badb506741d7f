// The one table of functions through which Penstock reaches CUDA. It names no CUDA type, so that
// the backend above it compiles and is tested on machines without a toolkit; tests put a fake in
// its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ps::cuda {

// A cudaError_t; 0 is success.
using Status = int;

inline constexpr Status success = 0;
inline constexpr Status memory_allocation = 2;
inline constexpr Status operating_system = 304;
inline constexpr Status not_ready = 600;

using StreamHandle = void*;
using EventHandle = void*;
using PoolHandle = void*;
using MemoryHandle = unsigned long long;

// The handles CUDA gives its default streams.
inline const StreamHandle legacy_stream = reinterpret_cast<StreamHandle>(0x1);
inline const StreamHandle per_thread_stream = reinterpret_cast<StreamHandle>(0x2);

struct Properties {
  std::string name;
  int major = 0, minor = 0;
  int multiprocessors = 0;
  int copy_engines = 0;
  std::size_t total_bytes = 0;
  std::size_t l2_bytes = 0;
  std::size_t shared_bytes = 0;  // of shared memory that a block of threads may have
  std::string pci_address;
  bool memory_pools = false;
  bool virtual_memory = false;
  bool stream_wait_value = false;  // and stream_write_value
  bool registered_memory = false;  // GPUs reach it by its host address
};

struct PoolUse {
  std::size_t in_use = 0, in_use_high = 0, reserved = 0, reserved_high = 0;
};

using HostFunction = void (*)(void*);

// Every function returns a Status and throws nothing. Functions that make something write their
// result only on success. Handles belong to the device that was current when they were made.
class Driver {
 public:
  Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  virtual ~Driver() = default;

  virtual Status device_count(int* count) = 0;
  virtual Status driver_version(int* version) = 0;  // 13000 for CUDA 13.0
  virtual Status runtime_version(int* version) = 0;
  virtual Status properties(int device, Properties* result) = 0;
  virtual Status memory_info(std::size_t* free, std::size_t* total) = 0;
  virtual Status set_device(int device) = 0;
  virtual Status get_device(int* device) = 0;
  virtual Status device_synchronize() = 0;
  // From now on a capture that another thread has under way neither forbids this thread's calls
  // nor is spoilt by them.
  virtual Status isolate_thread() = 0;

  // Clears a non-sticky error; a sticky one comes again from every later call.
  virtual Status last_error() = 0;
  virtual const char* error_name(Status status) = 0;
  virtual const char* error_meaning(Status status) = 0;

  virtual Status stream_create(StreamHandle* stream, bool high_priority) = 0;  // non-blocking
  virtual Status stream_destroy(StreamHandle stream) = 0;
  virtual Status stream_synchronize(StreamHandle stream) = 0;
  virtual Status stream_query(StreamHandle stream) = 0;
  virtual Status stream_wait_event(StreamHandle stream, EventHandle event) = 0;
  virtual Status stream_is_capturing(StreamHandle stream, bool* capturing) = 0;
  virtual Status launch_host(StreamHandle stream, HostFunction function, void* data) = 0;
  // The stream goes on once *flag >= value (wrapping compare); flag is page-locked host memory.
  virtual Status stream_wait_value(StreamHandle stream, std::uint32_t* flag,
                                   std::uint32_t value) = 0;
  // Writes *flag behind the stream's work so far, for streams that wait for it.
  virtual Status stream_write_value(StreamHandle stream, std::uint32_t* flag,
                                    std::uint32_t value) = 0;

  virtual Status event_create(EventHandle* event, bool timing, bool blocking) = 0;
  virtual Status event_destroy(EventHandle event) = 0;
  virtual Status event_record(EventHandle event, StreamHandle stream) = 0;
  virtual Status event_query(EventHandle event) = 0;
  virtual Status event_synchronize(EventHandle event) = 0;
  virtual Status event_elapsed_ms(float* milliseconds, EventHandle start, EventHandle stop) = 0;

  virtual Status copy(void* dst, const void* src, std::size_t bytes, StreamHandle stream) = 0;
  virtual Status fill(void* dst, int value, std::size_t bytes, StreamHandle stream) = 0;

  virtual Status host_alloc(void** data, std::size_t bytes) = 0;
  virtual Status host_free(void* data) = 0;
  // Page-locks memory of the caller in place, for all devices.
  virtual Status host_register(void* data, std::size_t bytes) = 0;
  virtual Status host_unregister(void* data) = 0;
  virtual Status device_alloc(void** data, std::size_t bytes) = 0;
  virtual Status device_free(void* data) = 0;

  virtual Status pool_create(PoolHandle* pool, int device, std::size_t limit) = 0;
  virtual Status pool_destroy(PoolHandle pool) = 0;
  virtual Status pool_set_threshold(PoolHandle pool, std::uint64_t bytes) = 0;
  virtual Status pool_trim(PoolHandle pool, std::size_t keep) = 0;
  virtual Status pool_use(PoolHandle pool, PoolUse* use) = 0;
  virtual Status pool_alloc(void** data, std::size_t bytes, PoolHandle pool,
                            StreamHandle stream) = 0;
  virtual Status pool_free(void* data, StreamHandle stream) = 0;

  virtual Status address_granularity(int device, std::size_t* bytes) = 0;
  virtual Status address_reserve(void** address, std::size_t bytes) = 0;
  virtual Status address_free(void* address, std::size_t bytes) = 0;
  virtual Status memory_create(MemoryHandle* memory, std::size_t bytes, int device) = 0;
  virtual Status memory_release(MemoryHandle memory) = 0;
  // Maps and makes readable and writable by `device`.
  virtual Status memory_map(void* address, std::size_t bytes, MemoryHandle memory, int device) = 0;
  virtual Status memory_unmap(void* address, std::size_t bytes) = 0;
};

// The real one; null, with the reason in `why`, in a build without CUDA.
std::shared_ptr<Driver> real_driver(std::string& why);

// Whether the device cannot be used any more in this process after this status.
bool is_sticky(Status status);

}  // namespace ps::cuda
