// cp.async: each thread asks for up to 16 bytes, which arrive in shared memory without passing
// through its registers. Compute capability 8.0.
#pragma once

#include "penstock/kit/address.cuh"
#include "penstock/kit/barrier.cuh"

namespace ps::kit {

// Copies `bytes` (4, 8 or 16; both addresses aligned to it). Only the first `valid` bytes are read;
// zeros fill the rest. 16 bytes pass by the L1 cache.
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

// Closes the group of this thread's copies since the last commit. An empty group is a group.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most the youngest `pending` of this thread's groups are still on their way. Other
// threads' copies need a barrier after it.
template <unsigned pending>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Arrives at the mbarrier when this thread's copies so far have landed. Counts as one of the
// arrivals the barrier was initialised with.
__device__ inline void cp_async_arrive(Barrier& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier.address())
               : "memory");
}

}  // namespace ps::kit
