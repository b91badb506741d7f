// Launches kernels with clusters, large shared memory, cooperative grids, and programmatic
// dependent launch (a kernel that starts while the previous one in the stream ends).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "penstock/base/error.h"

namespace ps::kit {

struct LaunchOptions {
  dim3 grid = 1;
  dim3 block = 1;
  std::size_t shared_bytes = 0;    // of dynamic shared memory; launch() sets the kernel's attribute
  unsigned cluster = 1;            // blocks per cluster, along x
  bool overlaps_previous = false;  // starts early; the kernel calls wait_for_previous()
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

namespace detail {

inline void check(cudaError_t code, const char* call) {
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

  LaunchConfig(const LaunchOptions& options, cudaStream_t stream) {
    config.gridDim = options.grid;
    config.blockDim = options.block;
    config.dynamicSmemBytes = options.shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    if (options.cluster > 1) {
      add(cudaLaunchAttributeClusterDimension).clusterDim = {options.cluster, 1, 1};
    }
    if (options.overlaps_previous) {
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

// Sets the kernel's attributes that a launch with these options needs.
inline void allow(const void* kernel, const LaunchOptions& options) {
  // 48 KiB need no attribute; static shared memory counts too.
  if (options.shared_bytes > 32 * 1024) {
    cudaFuncAttributes has{};
    check(cudaFuncGetAttributes(&has, kernel), "cudaFuncGetAttributes");
    if (static_cast<std::size_t>(has.maxDynamicSharedSizeBytes) < options.shared_bytes) {
      // The maximum, so that threads which launch the same kernel with different sizes do not lower
      // each other's limit.
      int device = 0, most = 0;
      check(cudaGetDevice(&device), "cudaGetDevice");
      check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
            "cudaDeviceGetAttribute");
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 most - static_cast<int>(has.sharedSizeBytes)),
            "cudaFuncSetAttribute");
    }
  }
  if (options.cluster > 8) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
          "cudaFuncSetAttribute");
  }
}

// The launch, for error messages.
inline std::string describe(const LaunchOptions& options) {
  const auto product = [](const dim3& d) { return std::to_string(std::uint64_t{d.x} * d.y * d.z); };
  return "launching " + product(options.grid) + " blocks of " + product(options.block) +
         " threads, " + std::to_string(options.shared_bytes) +
         " bytes of shared memory, clusters of " + std::to_string(options.cluster);
}

}  // namespace detail

// Enqueues the kernel on `stream`. Throws DeviceError if the launch fails. Errors while the kernel
// runs are reported by a later synchronisation.
template <class... Parameter, class... Argument>
void launch(void (*kernel)(Parameter...), const LaunchOptions& options, cudaStream_t stream,
            Argument&&... arguments) {
  detail::allow(reinterpret_cast<const void*>(kernel), options);
  const detail::LaunchConfig launch(options, stream);
  const cudaError_t refused =
      cudaLaunchKernelEx(&launch.config, kernel, std::forward<Argument>(arguments)...);
  if (refused != cudaSuccess) detail::check(refused, detail::describe(options).c_str());
}

// The number of clusters (blocks if `cluster` is 1) of this launch that the current device can run
// concurrently. A cluster stays within one GPC, so fewer fit than the number of SMs suggests.
template <class... Parameter>
unsigned resident_clusters(void (*kernel)(Parameter...), LaunchOptions options) {
  detail::allow(reinterpret_cast<const void*>(kernel), options);
  int count = 0;
  if (options.cluster > 1) {
    options.grid = options.cluster;
    const detail::LaunchConfig launch(options, nullptr);
    detail::check(cudaOccupancyMaxActiveClusters(&count, kernel, &launch.config),
                  "cudaOccupancyMaxActiveClusters");
    return static_cast<unsigned>(count);
  }
  int device = 0, processors = 0;
  detail::check(cudaGetDevice(&device), "cudaGetDevice");
  detail::check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
                "cudaDeviceGetAttribute");
  const dim3 block = options.block;
  detail::check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(
          &count, kernel, static_cast<int>(block.x * block.y * block.z), options.shared_bytes),
      "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return static_cast<unsigned>(count * processors);
}

}  // namespace ps::kit
