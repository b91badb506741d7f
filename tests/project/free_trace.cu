// One kernel three times: with the trace switched on, switched off, and without a word of it.
#include "penstock/kit/trace.cuh"

template <bool traced>
__global__ void with_trace(const float* in, float* out, unsigned tiles,
                           ps::kit::TraceBuffer<traced> buffer) {
  __shared__ float slot[256];
  ps::kit::Trace<traced> trace(buffer);
  trace.begin(threadIdx.x == 0);
  {
    auto mine = trace.role(threadIdx.x / 128, threadIdx.x % 128 == 0);
    for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const auto start = mine.now();
      slot[threadIdx.x] = in[tile * 256 + threadIdx.x];
      __syncthreads();
      mine.record(tile, start);
      out[tile * 256 + threadIdx.x] = slot[255 - threadIdx.x] * 2.0f;
      __syncthreads();
      mine.record(tile, start, mine.now());
    }
  }
  trace.end(threadIdx.x == 0);
}

__global__ void without(const float* in, float* out, unsigned tiles) {
  __shared__ float slot[256];
  for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    slot[threadIdx.x] = in[tile * 256 + threadIdx.x];
    __syncthreads();
    out[tile * 256 + threadIdx.x] = slot[255 - threadIdx.x] * 2.0f;
    __syncthreads();
  }
}

template __global__ void with_trace<true>(const float*, float*, unsigned,
                                          ps::kit::TraceBuffer<true>);
template __global__ void with_trace<false>(const float*, float*, unsigned,
                                           ps::kit::TraceBuffer<false>);
