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

// Makes the GPU current on this thread for a scope, as kit::launch() needs it, which throws its own
// errors.
class CurrentGpu {
 public:
  explicit CurrentGpu(const Device& gpu) : guard_(backend_of(gpu)) {}

 private:
  cuda::Guard guard_;
};

// For launches that report errors as codes: calls launch(), which enqueues kernels on the stream
// and returns a cudaError_t, with the stream's GPU current. `what` names the launch in errors:
// "launching resample". Throws DeviceError.
template <class Launch>
void launch_on(const Stream& stream, const char* what, const Launch& launch) {
  const CurrentGpu current(stream.device());
  backend_of(stream.device()).check(launch(), what);
}

}  // namespace ps::detail
