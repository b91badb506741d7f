// Converts between cudaStream_t and Stream. The only public .h that needs CUDA's headers.
#pragma once

#include <cuda_runtime_api.h>

#include "penstock/host/stream.h"

namespace ps {

// A Stream for the caller's stream. The caller keeps the stream alive as long as any object of the
// library that it was passed to. Stream 0 is the per-thread
// default stream where CUDA_API_PER_THREAD_DEFAULT_STREAM is defined, else the legacy default
// stream.
inline Stream borrow(const Device& device, cudaStream_t stream) {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  return borrow_native(device, stream == nullptr ? cudaStreamPerThread : stream);
#else
  return borrow_native(device, stream == nullptr ? cudaStreamLegacy : stream);
#endif
}

// The cudaStream_t of a stream on a GPU; null for a stream on the CPU.
inline cudaStream_t cuda_stream(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

}  // namespace ps
