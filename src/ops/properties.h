// The GPU behind a device, for operators. Nothing here needs CUDA's headers, unlike launch.h.
#pragma once

#include "host/cuda/backend.h"
#include "penstock/host/device.h"

namespace ps::detail {

inline cuda::Backend& backend_of(const Device& gpu) {
  return static_cast<cuda::Backend&>(gpu.backend());
}

// Of a device that is a GPU.
inline const cuda::Properties& properties_of(const Device& gpu) {
  return backend_of(gpu).properties();
}

}  // namespace ps::detail
