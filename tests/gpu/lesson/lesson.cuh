// What kernels share that may be wrong: they must end all the same, and show what went wrong each
// time. For .cu files. All of it belongs to the file that includes it: device variables do.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/lesson/job.h"
#include "gpu/lesson/stuck.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/fence.cuh"

namespace ps::lesson {
namespace {

// A wait that lasts this long never ends.
constexpr unsigned long long patience_ns = 2'000'000'000;

__device__ Stuck stuck;

// The tile's vectors, in global memory.
__device__ inline const uint4* from(const Job& job, unsigned tile) {
  return job.in + (blockIdx.x * job.tiles + tile) * threads;
}
__device__ inline uint4* to(const Job& job, unsigned tile) {
  return job.out + (blockIdx.x * job.tiles + tile) * threads;
}

__device__ inline void linger(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

// The last of four warps does.
__device__ inline void come_late(const Job& job) {
  if (threadIdx.x / 32 % 4 == 3) linger(job.late);
}

// Fills shared memory with what is never right, so that nothing left over from an earlier kernel
// is; ends with a barrier.
template <class T>
__device__ inline void spoil(T& shared) {
  auto* const words = reinterpret_cast<std::uint32_t*>(&shared);
  for (unsigned i = threadIdx.x; i < sizeof(T) / 4; i += blockDim.x) words[i] = 0xFFFFFFFF;
#if __CUDA_ARCH__ >= 900
  kit::fence_shared_to_async();
#endif
  __syncthreads();
}

// Whether to give up a wait; `deadline` is 0 before its first call. Where one thread has given up
// at a barrier, the others do.
__device__ inline bool give_up(unsigned long long& deadline, Stuck why,
                               unsigned long long patience = patience_ns) {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  if (deadline == 0) deadline = now + patience;
  if (now < deadline && *static_cast<volatile Stuck*>(&stuck) != Stuck::at_a_barrier) return false;
  *static_cast<volatile Stuck*>(&stuck) = why;
  return true;
}

// The kit's barrier, but that its wait() ends.
struct PatientBarrier : kit::Barrier {
  __device__ void wait(unsigned parity) {
    unsigned long long deadline = 0;
    while (!try_wait(parity)) {
      if (give_up(deadline, Stuck::at_a_barrier)) return;
    }
  }
};

// What the kernels of this file were stuck at since the last call.
inline Stuck take_stuck() {
  Stuck was = Stuck::nowhere;
  constexpr Stuck nowhere = Stuck::nowhere;
  cudaMemcpyFromSymbol(&was, stuck, sizeof(was));
  cudaMemcpyToSymbol(stuck, &nowhere, sizeof(nowhere));
  return was;
}

}  // namespace
}  // namespace ps::lesson
