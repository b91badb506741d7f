// Launches kernels with clusters, large shared memory, cooperative grids, and programmatic
// dependent launch (a kernel that starts while the previous one in the stream ends).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/kit/launch_cache.h"

namespace ps::kit {

struct LaunchOptions {
  dim3 grid = 1;
  dim3 block = 1;
  std::size_t shared_bytes = 0;  // of dynamic shared memory; launch() sets the kernel's attribute
  unsigned cluster = 1;          // blocks per cluster, along x
  // Starts early; the kernel calls wait_for_previous(). No effect below compute capability 9.0.
  bool overlaps_previous = false;
  bool all_blocks_at_once = false;  // cooperative, for GridBarrier; fails if they do not fit
};

// In the kernel: waits for the previous kernel in the stream. Before this call, do not access
// memory that earlier kernels use. Free in an ordinary launch.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// In the kernel: once all blocks have called this or exited, the next kernel starts if it was
// launched with `overlaps_previous`.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A program and a library in it may each have a CUDA runtime of their own, linked statically, which
// knows its own kernels only. So neither may call the other's copy of the host functions below:
// templates are static, the others hidden.
#define PENSTOCK_OWN_RUNTIME [[gnu::visibility("hidden")]]

namespace detail {

PENSTOCK_OWN_RUNTIME inline void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that it is not reported twice
  int device = 0;
  cudaGetDevice(&device);
  throw DeviceError("cuda:" + std::to_string(device), call, code, cudaGetErrorString(code));
}

// The options in the runtime's form. Must outlive the call that uses it.
struct LaunchConfig {
  cudaLaunchAttribute attributes[3];
  cudaLaunchConfig_t config = {};

  LaunchConfig(const LaunchOptions& options, cudaStream_t stream, bool overlaps = false) {
    config.gridDim = options.grid;
    config.blockDim = options.block;
    config.dynamicSmemBytes = options.shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    if (options.cluster > 1) {
      add(cudaLaunchAttributeClusterDimension).clusterDim = {options.cluster, 1, 1};
    }
    if (overlaps) {
      add(cudaLaunchAttributeProgrammaticStreamSerialization)
          .programmaticStreamSerializationAllowed = 1;
    }
    if (options.all_blocks_at_once) add(cudaLaunchAttributeCooperative).cooperative = 1;
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;

 private:
  cudaLaunchAttributeValue& add(cudaLaunchAttributeID id) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = id;
    return attribute.val;
  }
};

// What the calls below have asked of the runtime: each question takes microseconds, as long as a
// launch. One per thread, so that no lock is needed.
PENSTOCK_OWN_RUNTIME inline LaunchCache& launch_cache() {
  thread_local LaunchCache cache;
  return cache;
}

PENSTOCK_OWN_RUNTIME inline int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

// The dynamic shared memory is set to the maximum, so that threads which launch the same kernel
// with different sizes do not lower each other's limit.
PENSTOCK_OWN_RUNTIME inline void allow_all_shared(const void* kernel, int device) {
  cudaFuncAttributes has{};
  check(cudaFuncGetAttributes(&has, kernel), "cudaFuncGetAttributes");
  int most = 0;
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  const int dynamic = most - static_cast<int>(has.sharedSizeBytes);
  if (has.maxDynamicSharedSizeBytes >= dynamic) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic),
        "cudaFuncSetAttribute");
}

// Sets the kernel's attributes that a launch with these options needs, once per device and thread.
// So do not lower them.
PENSTOCK_OWN_RUNTIME inline void allow(const void* kernel, const LaunchOptions& options) {
  // 48 KiB need no attribute; static shared memory counts too.
  const bool large = options.shared_bytes > 32 * 1024;
  const bool wide = options.cluster > 8;
  if (!large && !wide) return;
  const LaunchCache::Key key{kernel, current_device(), wide, 0, large};
  if (launch_cache().find(key) != nullptr) return;
  if (large) allow_all_shared(kernel, key.device);
  if (wide) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
          "cudaFuncSetAttribute");
  }
  launch_cache().keep(key, 1);
}

// Whether the kernel may start early. Code that was compiled for less than 9.0 does not wait for
// the previous kernel, whatever GPU it runs on, so it must not. Asks once per kernel, device and
// thread.
PENSTOCK_OWN_RUNTIME inline bool may_overlap(const void* kernel) {
  constexpr unsigned question = ~0u;  // no cluster: tells these entries from the others
  const LaunchCache::Key key{kernel, current_device(), question, 0, 0};
  if (const unsigned* known = launch_cache().find(key)) return *known != 0;
  cudaFuncAttributes has{};
  check(cudaFuncGetAttributes(&has, kernel), "cudaFuncGetAttributes");
  const bool waits = has.ptxVersion >= 90;
  launch_cache().keep(key, waits);
  return waits;
}

// The launch, for error messages.
inline std::string describe(const LaunchOptions& options) {
  const auto product = [](const dim3& d) { return std::to_string(std::uint64_t{d.x} * d.y * d.z); };
  return "launching " + product(options.grid) + " blocks of " + product(options.block) +
         " threads, " + std::to_string(options.shared_bytes) +
         " bytes of shared memory, clusters of " + std::to_string(options.cluster);
}

// How many LoadKernels this thread has.
PENSTOCK_OWN_RUNTIME inline unsigned& loading_only() {
  thread_local unsigned count = 0;
  return count;
}

}  // namespace detail

// While one exists, launch() in this thread loads kernels and enqueues nothing.
//
// CUDA loads a kernel when it is first used, and may wait for all work on the device to do so. If a
// stream waits for something that this thread or another one has yet to enqueue, neither goes on.
// So load the kernels that are launched behind such a wait before it is enqueued.
class [[gnu::visibility("hidden")]] LoadKernels {
 public:
  LoadKernels() { ++detail::loading_only(); }
  ~LoadKernels() { --detail::loading_only(); }
  LoadKernels(const LoadKernels&) = delete;
  LoadKernels& operator=(const LoadKernels&) = delete;
};

// Enqueues the kernel on `stream`. Throws DeviceError if the launch fails. Errors while the kernel
// runs are reported by a later synchronisation.
template <class... Parameter, class... Argument>
static void launch(void (*kernel)(Parameter...), const LaunchOptions& options, cudaStream_t stream,
                   Argument&&... arguments) {
  const auto* const function = reinterpret_cast<const void*>(kernel);
  detail::allow(function, options);
  if (detail::loading_only() > 0) {
    detail::may_overlap(function);  // asks for the kernel's attributes once, which loads it
    return;
  }
  const detail::LaunchConfig launch(options, stream,
                                    options.overlaps_previous && detail::may_overlap(function));
  const cudaError_t refused =
      cudaLaunchKernelEx(&launch.config, kernel, std::forward<Argument>(arguments)...);
  if (refused != cudaSuccess) detail::check(refused, detail::describe(options).c_str());
}

// The number of clusters (blocks if `cluster` is 1) of this launch that the current device can run
// concurrently. A cluster stays within one GPC, so fewer fit than the number of SMs suggests. Quick
// when called again with the same options.
template <class... Parameter>
static unsigned resident_clusters(void (*kernel)(Parameter...), LaunchOptions options) {
  const auto* const function = reinterpret_cast<const void*>(kernel);
  const std::uint64_t threads = std::uint64_t{options.block.x} * options.block.y * options.block.z;
  const detail::LaunchCache::Key key{function, detail::current_device(), options.cluster, threads,
                                     options.shared_bytes};
  if (const unsigned* known = detail::launch_cache().find(key)) return *known;

  detail::allow(function, options);
  int count = 0;
  if (options.cluster > 1) {
    options.grid = options.cluster;
    const detail::LaunchConfig launch(options, nullptr);
    detail::check(cudaOccupancyMaxActiveClusters(&count, kernel, &launch.config),
                  "cudaOccupancyMaxActiveClusters");
  } else {
    int processors = 0;
    detail::check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, key.device),
                  "cudaDeviceGetAttribute");
    detail::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                      &count, kernel, static_cast<int>(threads), options.shared_bytes),
                  "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    count *= processors;
  }
  detail::launch_cache().keep(key, static_cast<unsigned>(count));
  return static_cast<unsigned>(count);
}

}  // namespace ps::kit
