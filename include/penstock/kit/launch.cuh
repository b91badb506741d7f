// Launching: clusters, much shared memory, all blocks at once, and a kernel that starts while the
// one before it in the stream still ends (programmatic dependent launch).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <utility>

#include "penstock/base/error.h"

namespace ps::kit {

struct LaunchOptions {
  dim3 grid = 1;
  dim3 block = 1;
  std::size_t shared_bytes = 0;     // dynamic; beyond 48 KiB the kernel is asked to allow it
  unsigned cluster = 1;             // blocks along x that form a cluster
  bool overlaps_previous = false;   // starts early, and calls wait_for_previous()
  bool all_blocks_at_once = false;  // for GridBarrier; refused when they do not fit
};

// In the kernel: before this, nothing that an earlier kernel of the stream writes may be touched.
// Costs nothing in a plain launch.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// In the kernel: when every block has said so or ended, the next kernel may start, if it was
// launched with `overlaps_previous`.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

namespace detail {

inline void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // so that it is not reported twice
  int device = 0;
  cudaGetDevice(&device);
  throw DeviceError("cuda:" + std::to_string(device), call, code, cudaGetErrorString(code));
}

}  // namespace detail

// Enqueues the kernel on `stream` and returns. Throws DeviceError when the launch is refused; what
// goes wrong while it runs shows at a later synchronisation.
template <class... Parameter, class... Argument>
void launch(void (*kernel)(Parameter...), const LaunchOptions& options, cudaStream_t stream,
            Argument&&... arguments) {
  if (options.shared_bytes > 48 * 1024) {
    detail::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(options.shared_bytes)),
                  "cudaFuncSetAttribute");
  }
  cudaLaunchAttribute attributes[3];
  unsigned count = 0;
  if (options.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim = {options.cluster, 1, 1};
    ++count;
  }
  if (options.overlaps_previous) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  if (options.all_blocks_at_once) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count].val.cooperative = 1;
    ++count;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = options.grid;
  config.blockDim = options.block;
  config.dynamicSmemBytes = options.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  detail::check(cudaLaunchKernelEx(&config, kernel, std::forward<Argument>(arguments)...),
                "cudaLaunchKernelEx");
}

}  // namespace ps::kit
