// Orderings that a barrier alone does not give.
#pragma once

namespace ps::kit {

// Makes initialised mbarriers visible to the copy engine and to the cluster. By the thread that
// initialised them.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// What this thread wrote to shared memory with ordinary stores becomes visible to bulk copies,
// tensor copies and wgmma. By every writing thread, before the barrier that hands the data over.
__device__ inline void fence_shared_to_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same for global memory.
__device__ inline void fence_global_to_async() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// A barrier of `threads` threads of the block (a multiple of 32), by a number from 1 to 15; 0 is
// __syncthreads'.
__device__ inline void named_barrier_wait(unsigned number, unsigned threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Counts towards the same barrier without waiting at it.
__device__ inline void named_barrier_arrive(unsigned number, unsigned threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

}  // namespace ps::kit
