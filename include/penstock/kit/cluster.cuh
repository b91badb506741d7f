// Thread block clusters: blocks that run concurrently and access each other's shared memory. Needs
// compute capability 9.0.
#pragma once

#include <cstdint>

#include "penstock/kit/address.cuh"
#include "penstock/kit/barrier.cuh"

namespace ps::kit {

__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ inline unsigned cluster_size() {
  unsigned size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

// A barrier of all threads in the cluster, split into arrive and wait. Writes before arriving are
// visible to all threads after waiting.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// Does not order writes, which saves a GPU-wide fence. Enough after fence_barrier_init().
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// A pointer to the same shared object in block `rank`. That block must have started and must not
// exit before the last access, so call cluster_sync() before the first and after the last.
template <class T>
__device__ inline T* in_block(T* object, unsigned rank) {
  T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(object), "r"(rank));
  return there;
}

// Writes a word to the shared memory of block `rank`. The 4 bytes complete on that block's `full`.
// Only in launches with clusters; otherwise an illegal instruction.
__device__ inline void store_in(std::uint32_t* shared, std::uint32_t value, Barrier& full,
                                unsigned rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
                   shared_address_in(shared_address(shared), rank)),
               "r"(value), "r"(shared_address_in(full.address(), rank))
               : "memory");
}

// The same for four floats, 16 bytes; `shared` is aligned to them.
__device__ inline void store_in(float4* shared, float4 value, Barrier& full, unsigned rank) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(shared_address_in(shared_address(shared), rank)),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w),
      "r"(shared_address_in(full.address(), rank))
      : "memory");
}

// A Barrier that orders ordinary stores across the cluster: what threads of other blocks wrote to
// this block's shared memory before arrive_in() is visible after wait(). Slower than Barrier:
// arriving takes a fence, and waiting invalidates the L1 cache.
struct ClusterBarrier : Barrier {
  __device__ bool try_wait(unsigned parity) {
    unsigned done;
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(address()), "r"(parity)
        : "memory");
    return done != 0;
  }

  __device__ void wait(unsigned parity) {
    while (!try_wait(parity)) {
    }
  }

  // Arrives at the same barrier in block `rank`.
  __device__ void arrive_in(unsigned rank) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                     shared_address_in(address(), rank))
                 : "memory");
  }
};

}  // namespace ps::kit
