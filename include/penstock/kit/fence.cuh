// Fences between ordinary accesses and the async proxy, and barriers of parts of a block.
#pragma once

namespace ps::kit {

// Makes initialised Barriers visible to asynchronous copies and to the cluster. Call from the
// thread that initialised them.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Makes this thread's ordinary stores to shared memory visible to bulk copies, tensor copies and
// wgmma. Call from every thread that wrote, before the barrier after which the copy is issued.
__device__ inline void fence_shared_to_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same for global memory.
__device__ inline void fence_global_to_async() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// Waits at barrier `number`, 1 to 15, until `threads` threads of the block, a multiple of 32, have
// arrived. Number 0 belongs to __syncthreads().
__device__ inline void named_barrier_wait(unsigned number, unsigned threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Arrives at the same barrier without waiting.
__device__ inline void named_barrier_arrive(unsigned number, unsigned threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

}  // namespace ps::kit
