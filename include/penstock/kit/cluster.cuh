// Blocks that run side by side and reach each other's shared memory. Compute capability 9.0.
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

// A barrier of all threads of the cluster in two halves. What a thread wrote before arriving is
// visible to the others after waiting.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// Orders nothing but the arrival itself: enough behind fence_barrier_init(), and without the fence
// of the whole GPU that the release above costs.
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

// A pointer to the same object in block `rank`. That block must have started, and must not end
// before the last access: a cluster_sync() at both ends.
template <class T>
__device__ inline T* in_block(T* object, unsigned rank) {
  T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(object), "r"(rank));
  return there;
}

// Writes a word into block `rank`; its four bytes complete on the barrier that lies there where
// `full` lies here. An illegal instruction in launches without clusters.
__device__ inline void store_in(std::uint32_t* shared, std::uint32_t value, Barrier& full,
                                unsigned rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
                   shared_address_in(shared_address(shared), rank)),
               "r"(value), "r"(shared_address_in(full.address(), rank))
               : "memory");
}

// A barrier at which threads of other blocks arrive after ordinary stores to this block's memory:
// what they wrote is visible behind wait(). The order costs a fence on one side and the L1 cache on
// the other.
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
