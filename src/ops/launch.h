// Launching the kernels of operators.
#pragma once

#include "host/cuda/backend.h"
#include "penstock/host/stream.h"

namespace ps::detail {

inline cuda::Backend& backend_of(const Device& gpu) {
  return static_cast<cuda::Backend&>(gpu.backend());
}

// Of a device that is a GPU.
inline const cuda::Properties& properties_of(const Device& gpu) {
  return backend_of(gpu).properties();
}

// Calls launch(), which enqueues kernels on the stream and returns a cudaError_t, with the stream's
// GPU current. `what` names the launch in errors: "launching resample". Throws DeviceError.
template <class Launch>
void launch_on(const Stream& stream, const char* what, const Launch& launch) {
  cuda::Backend& backend = backend_of(stream.device());
  const cuda::Guard current(backend);
  backend.check(launch(), what);
}

}  // namespace ps::detail
