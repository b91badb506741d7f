// Asks the driver what a kernel takes, for this GPU and this launch.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "penstock/kit/launch.cuh"
#include "support/kernel_use.h"

namespace ladder {

inline int current_device() {
  int device = 0;
  ps::kit::detail::check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

inline int current_device_attribute(cudaDeviceAttr attribute) {
  int value = 0;
  ps::kit::detail::check(cudaDeviceGetAttribute(&value, attribute, current_device()),
                         "cudaDeviceGetAttribute");
  return value;
}

inline unsigned multiprocessors() {
  return static_cast<unsigned>(current_device_attribute(cudaDevAttrMultiProcessorCount));
}

// Of the current device. `dynamic_bytes` of shared memory come on top of what the kernel declares.
template <class... Parameter>
KernelUse kernel_use(void (*kernel)(Parameter...), unsigned threads,
                     std::size_t dynamic_bytes = 0) {
  using ps::kit::detail::check;
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  ps::kit::detail::allow(reinterpret_cast<const void*>(kernel), {.shared_bytes = dynamic_bytes});
  KernelUse use{.registers = attributes.numRegs,
                .shared_bytes = attributes.sharedSizeBytes + dynamic_bytes,
                .threads = static_cast<int>(threads)};
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&use.blocks, kernel, use.threads,
                                                      dynamic_bytes),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const int most = current_device_attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  use.occupancy = static_cast<double>(use.blocks) * use.threads / most;
  return use;
}

}  // namespace ladder
