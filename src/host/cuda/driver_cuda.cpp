// The real driver: the CUDA runtime, linked statically, and the few driver functions it has no name
// for, found at run time. Nothing links libcuda, so the library loads on machines without it.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "host/cuda/driver.h"

namespace ps::cuda {
namespace {

static_assert(success == cudaSuccess && memory_allocation == cudaErrorMemoryAllocation &&
              not_ready == cudaErrorNotReady);

cudaStream_t native(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(EventHandle event) { return static_cast<cudaEvent_t>(event); }
cudaMemPool_t pool_of(PoolHandle pool) { return static_cast<cudaMemPool_t>(pool); }
CUdeviceptr address_of(void* data) { return reinterpret_cast<CUdeviceptr>(data); }

// A driver function by name and the version whose signature is used here.
template <class Function>
Function entry(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  if (cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result) !=
          cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<Function>(found);
}

// The driver's codes are the runtime's where the two meet here.
Status status_of(CUresult result) { return static_cast<Status>(result); }

class RealDriver final : public Driver {
 public:
  Status device_count(int* count) override { return cudaGetDeviceCount(count); }
  Status driver_version(int* version) override { return cudaDriverGetVersion(version); }
  Status runtime_version(int* version) override { return cudaRuntimeGetVersion(version); }
  Status properties(int device, Properties* result) override;
  Status memory_info(std::size_t* free, std::size_t* total) override {
    return cudaMemGetInfo(free, total);
  }
  Status set_device(int device) override { return cudaSetDevice(device); }
  Status get_device(int* device) override { return cudaGetDevice(device); }
  Status device_synchronize() override { return cudaDeviceSynchronize(); }

  Status isolate_thread() override {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    return cudaThreadExchangeStreamCaptureMode(&mode);
  }

  Status last_error() override { return cudaGetLastError(); }
  const char* error_name(Status status) override {
    return cudaGetErrorName(static_cast<cudaError_t>(status));
  }
  const char* error_meaning(Status status) override {
    return cudaGetErrorString(static_cast<cudaError_t>(status));
  }

  Status stream_create(StreamHandle* stream, bool high_priority) override;
  Status stream_destroy(StreamHandle stream) override { return cudaStreamDestroy(native(stream)); }
  Status stream_synchronize(StreamHandle stream) override {
    return cudaStreamSynchronize(native(stream));
  }
  Status stream_query(StreamHandle stream) override { return cudaStreamQuery(native(stream)); }
  Status stream_wait_event(StreamHandle stream, EventHandle event) override {
    return cudaStreamWaitEvent(native(stream), event_of(event), cudaEventWaitDefault);
  }
  Status stream_is_capturing(StreamHandle stream, bool* capturing) override;
  Status launch_host(StreamHandle stream, HostFunction function, void* data) override {
    return cudaLaunchHostFunc(native(stream), function, data);
  }
  Status stream_wait_value(StreamHandle stream, std::uint32_t* flag, std::uint32_t value) override {
    return status_of(wait_value_(static_cast<CUstream>(stream), address_of(flag), value,
                                 CU_STREAM_WAIT_VALUE_GEQ));
  }
  Status stream_write_value(StreamHandle stream, std::uint32_t* flag,
                            std::uint32_t value) override {
    // By default what the stream did before is visible to whoever sees the value.
    return status_of(write_value_(static_cast<CUstream>(stream), address_of(flag), value,
                                  CU_STREAM_WRITE_VALUE_DEFAULT));
  }

  Status event_create(EventHandle* event, bool timing, bool blocking) override;
  Status event_destroy(EventHandle event) override { return cudaEventDestroy(event_of(event)); }
  Status event_record(EventHandle event, StreamHandle stream) override {
    return cudaEventRecord(event_of(event), native(stream));
  }
  Status event_query(EventHandle event) override { return cudaEventQuery(event_of(event)); }
  Status event_synchronize(EventHandle event) override {
    return cudaEventSynchronize(event_of(event));
  }
  Status event_elapsed_ms(float* milliseconds, EventHandle start, EventHandle stop) override {
    return cudaEventElapsedTime(milliseconds, event_of(start), event_of(stop));
  }

  Status copy(void* dst, const void* src, std::size_t bytes, StreamHandle stream) override {
    return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, native(stream));
  }
  Status fill(void* dst, int value, std::size_t bytes, StreamHandle stream) override {
    return cudaMemsetAsync(dst, value, bytes, native(stream));
  }

  Status host_alloc(void** data, std::size_t bytes) override {
    return cudaHostAlloc(data, bytes, cudaHostAllocPortable);
  }
  Status host_free(void* data) override { return cudaFreeHost(data); }
  Status host_register(void* data, std::size_t bytes) override {
    return cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  }
  Status host_unregister(void* data) override { return cudaHostUnregister(data); }
  Status device_alloc(void** data, std::size_t bytes) override { return cudaMalloc(data, bytes); }
  Status device_free(void* data) override { return cudaFree(data); }

  Status pool_create(PoolHandle* pool, int device, std::size_t limit) override;
  Status pool_destroy(PoolHandle pool) override { return cudaMemPoolDestroy(pool_of(pool)); }
  Status pool_set_threshold(PoolHandle pool, std::uint64_t bytes) override {
    return cudaMemPoolSetAttribute(pool_of(pool), cudaMemPoolAttrReleaseThreshold, &bytes);
  }
  Status pool_trim(PoolHandle pool, std::size_t keep) override {
    return cudaMemPoolTrimTo(pool_of(pool), keep);
  }
  Status pool_use(PoolHandle pool, PoolUse* use) override;
  Status pool_alloc(void** data, std::size_t bytes, PoolHandle pool, StreamHandle stream) override {
    return cudaMallocFromPoolAsync(data, bytes, pool_of(pool), native(stream));
  }
  Status pool_free(void* data, StreamHandle stream) override {
    return cudaFreeAsync(data, native(stream));
  }

  Status address_granularity(int device, std::size_t* bytes) override;
  Status address_reserve(void** address, std::size_t bytes) override;
  Status address_free(void* address, std::size_t bytes) override {
    return status_of(address_free_(address_of(address), bytes));
  }
  Status memory_create(MemoryHandle* memory, std::size_t bytes, int device) override;
  Status memory_release(MemoryHandle memory) override { return status_of(release_(memory)); }
  Status memory_map(void* address, std::size_t bytes, MemoryHandle memory, int device) override;
  Status memory_unmap(void* address, std::size_t bytes) override {
    return status_of(unmap_(address_of(address), bytes));
  }

 private:
  static CUmemAllocationProp pages_of(int device) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return properties;
  }
  bool has_virtual_memory() const {
    return granularity_ != nullptr && reserve_ != nullptr && address_free_ != nullptr &&
           create_ != nullptr && release_ != nullptr && map_ != nullptr && unmap_ != nullptr &&
           access_ != nullptr;
  }

  decltype(&cuStreamWaitValue32) wait_value_ =
      entry<decltype(&cuStreamWaitValue32)>("cuStreamWaitValue32", 11070);
  decltype(&cuStreamWriteValue32) write_value_ =
      entry<decltype(&cuStreamWriteValue32)>("cuStreamWriteValue32", 11070);
  decltype(&cuMemGetAllocationGranularity) granularity_ =
      entry<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity", 10020);
  decltype(&cuMemAddressReserve) reserve_ =
      entry<decltype(&cuMemAddressReserve)>("cuMemAddressReserve", 10020);
  decltype(&cuMemAddressFree) address_free_ =
      entry<decltype(&cuMemAddressFree)>("cuMemAddressFree", 10020);
  decltype(&cuMemCreate) create_ = entry<decltype(&cuMemCreate)>("cuMemCreate", 10020);
  decltype(&cuMemRelease) release_ = entry<decltype(&cuMemRelease)>("cuMemRelease", 10020);
  decltype(&cuMemMap) map_ = entry<decltype(&cuMemMap)>("cuMemMap", 10020);
  decltype(&cuMemUnmap) unmap_ = entry<decltype(&cuMemUnmap)>("cuMemUnmap", 10020);
  decltype(&cuMemSetAccess) access_ = entry<decltype(&cuMemSetAccess)>("cuMemSetAccess", 10020);
};

Status RealDriver::properties(int device, Properties* result) {
  cudaDeviceProp p{};
  if (const Status status = cudaGetDeviceProperties(&p, device); status != success) return status;
  char address[32] = {};
  if (const Status status = cudaDeviceGetPCIBusId(address, sizeof(address), device);
      status != success) {
    return status;
  }
  int pools = 0;
  cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device);
  int registers = 0, same_address = 0;
  cudaDeviceGetAttribute(&registers, cudaDevAttrHostRegisterSupported, device);
  cudaDeviceGetAttribute(&same_address, cudaDevAttrCanUseHostPointerForRegisteredMem, device);
  *result = {.name = p.name,
             .major = p.major,
             .minor = p.minor,
             .multiprocessors = p.multiProcessorCount,
             .copy_engines = p.asyncEngineCount,
             .total_bytes = p.totalGlobalMem,
             .l2_bytes = static_cast<std::size_t>(p.l2CacheSize),
             .shared_bytes = p.sharedMemPerBlockOptin,
             .pci_address = address,
             .memory_pools = pools != 0,
             .virtual_memory = has_virtual_memory(),
             .stream_wait_value = wait_value_ != nullptr && write_value_ != nullptr,
             .registered_memory = registers != 0 && same_address != 0};
  // The system spells the address in lower case.
  for (char& c : result->pci_address) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
  }
  return success;
}

Status RealDriver::stream_create(StreamHandle* stream, bool high_priority) {
  int least = 0, greatest = 0;
  if (const Status status = cudaDeviceGetStreamPriorityRange(&least, &greatest);
      status != success) {
    return status;
  }
  cudaStream_t made = nullptr;
  const Status status =
      cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, high_priority ? greatest : least);
  if (status == success) *stream = made;
  return status;
}

Status RealDriver::stream_is_capturing(StreamHandle stream, bool* capturing) {
  cudaStreamCaptureStatus state{};
  const Status status = cudaStreamIsCapturing(native(stream), &state);
  if (status == success) *capturing = state != cudaStreamCaptureStatusNone;
  return status;
}

Status RealDriver::event_create(EventHandle* event, bool timing, bool blocking) {
  unsigned flags = timing ? cudaEventDefault : cudaEventDisableTiming;
  if (blocking) flags |= cudaEventBlockingSync;
  cudaEvent_t made = nullptr;
  const Status status = cudaEventCreateWithFlags(&made, flags);
  if (status == success) *event = made;
  return status;
}

Status RealDriver::pool_create(PoolHandle* pool, int device, std::size_t limit) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, device};
  properties.maxSize = limit;
  cudaMemPool_t made = nullptr;
  const Status status = cudaMemPoolCreate(&made, &properties);
  if (status == success) *pool = made;
  return status;
}

Status RealDriver::pool_use(PoolHandle pool, PoolUse* use) {
  std::uint64_t values[4] = {};
  constexpr cudaMemPoolAttr attributes[] = {
      cudaMemPoolAttrUsedMemCurrent, cudaMemPoolAttrUsedMemHigh, cudaMemPoolAttrReservedMemCurrent,
      cudaMemPoolAttrReservedMemHigh};
  for (int i = 0; i < 4; ++i) {
    const Status status = cudaMemPoolGetAttribute(pool_of(pool), attributes[i], &values[i]);
    if (status != success) return status;
  }
  *use = {values[0], values[1], values[2], values[3]};
  return success;
}

Status RealDriver::address_granularity(int device, std::size_t* bytes) {
  const CUmemAllocationProp properties = pages_of(device);
  return status_of(granularity_(bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
}

Status RealDriver::address_reserve(void** address, std::size_t bytes) {
  CUdeviceptr range = 0;
  const Status status = status_of(reserve_(&range, bytes, 0, 0, 0));
  // The driver's word for an address is an integer. NOLINTNEXTLINE(performance-no-int-to-ptr)
  if (status == success) *address = reinterpret_cast<void*>(range);
  return status;
}

Status RealDriver::memory_create(MemoryHandle* memory, std::size_t bytes, int device) {
  const CUmemAllocationProp properties = pages_of(device);
  CUmemGenericAllocationHandle made = 0;
  const Status status = status_of(create_(&made, bytes, &properties, 0));
  if (status == success) *memory = made;
  return status;
}

Status RealDriver::memory_map(void* address, std::size_t bytes, MemoryHandle memory, int device) {
  if (const Status status = status_of(map_(address_of(address), bytes, 0, memory, 0));
      status != success) {
    return status;
  }
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const Status status = status_of(access_(address_of(address), bytes, &access, 1));
  if (status != success) unmap_(address_of(address), bytes);
  return status;
}

}  // namespace

std::shared_ptr<Driver> real_driver(std::string& /*why*/) { return std::make_shared<RealDriver>(); }

}  // namespace ps::cuda
