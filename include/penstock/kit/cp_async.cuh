// cp.async: each thread copies up to 16 bytes per call from global to shared memory, asynchronously
// and without using registers. Needs compute capability 8.0.
#pragma once

#include "penstock/kit/address.cuh"
#include "penstock/kit/barrier.cuh"

namespace ps::kit {

// Copies 4, 8 or 16 bytes; both addresses are aligned to that size. Only the first `valid` bytes
// are read, and the rest is filled with zeros. Copies of 16 bytes bypass the L1 cache.
template <unsigned bytes>
__device__ inline void cp_async(void* shared, const void* global, unsigned valid = bytes) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async moves 4, 8 or 16 bytes");
  if constexpr (bytes == 16) {
    asm volatile(
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
        "l"(global), "r"(valid)
        : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
                 "l"(global), "n"(bytes), "r"(valid)
                 : "memory");
  }
}

// Puts this thread's copies since the last commit into a group, which may be empty.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most the `pending` youngest groups of this thread are in flight. To read what
// other threads copied, synchronise the block afterwards.
template <unsigned pending>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Arrives at `barrier` when this thread's copies so far have completed. Counts as one of the
// arrivals that the barrier was initialised with.
__device__ inline void cp_async_arrive(Barrier& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier.address())
               : "memory");
}

}  // namespace ps::kit
