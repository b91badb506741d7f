// Where Penstock meets the CUDA runtime: a caller's cudaStream_t in, a Stream's cudaStream_t out.
// The only public header that needs CUDA's own.
#pragma once

#include <cuda_runtime_api.h>

#include "penstock/host/stream.h"

namespace ps {

// The caller's stream, used exactly as it is; the caller keeps it alive. Stream 0 means what it
// means where this header is compiled: the per-thread default stream under
// CUDA_API_PER_THREAD_DEFAULT_STREAM, else the legacy one.
inline Stream borrow(const Device& device, cudaStream_t stream) {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  return borrow_native(device, stream == nullptr ? cudaStreamPerThread : stream);
#else
  return borrow_native(device, stream == nullptr ? cudaStreamLegacy : stream);
#endif
}

inline cudaStream_t cuda_stream(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

}  // namespace ps
