#include <cuda_runtime.h>

#include "penstock/host/cuda.h"
#include "support/check_cuda.h"
#include "support/spin.h"

namespace ladder::detail {
namespace {

__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void spin_kernel(unsigned long long duration) {
  const unsigned long long begin = nanoseconds();
  while (nanoseconds() - begin < duration) {
  }
}

}  // namespace

void spin_cuda(const SpinOptions& options, const ps::Stream& stream) {
  check(cudaSetDevice(stream.device().index()), "cudaSetDevice");
  const int shared = static_cast<int>(options.shared_bytes);
  check(cudaFuncSetAttribute(spin_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
        "cudaFuncSetAttribute");
  spin_kernel<<<options.blocks, 32, options.shared_bytes, ps::cuda_stream(stream)>>>(
      static_cast<unsigned long long>(options.seconds * 1e9));
  check(cudaGetLastError(), "launching spin");
}

std::size_t most_shared_bytes_cuda(const ps::Device& device) {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()),
        "cudaDeviceGetAttribute");
  return static_cast<std::size_t>(bytes);
}

}  // namespace ladder::detail
