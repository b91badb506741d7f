// Launching the kernels of operators.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/properties.h"
#include "penstock/host/stream.h"

namespace ps::detail {

// Puts this thread into the relaxed capture mode for a scope. In the other modes CUDA forbids calls
// that are not recorded while a stream is being captured, and makes the capture invalid. CUDA loads
// a kernel when it is first asked for or launched; none of the work that a graph repeats depends on
// this.
class RelaxedCapture {
 public:
  RelaxedCapture() : changed_(cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess) {}
  ~RelaxedCapture() {
    if (changed_) static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the one before
  bool changed_;
};

// Makes the GPU current on this thread for a scope, as kit::launch() needs it, which throws its own
// errors. A kernel that is used for the first time in this scope may be captured.
class CurrentGpu {
 public:
  explicit CurrentGpu(const Device& gpu) : guard_(backend_of(gpu)) {}

 private:
  cuda::Guard guard_;
  RelaxedCapture relaxed_;
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
