// An mbarrier: threads arrive, asynchronous copies bring their bytes, and the phase completes when
// both are all there. The barrier that a Ring of the GPU is made of.
#pragma once

#include <cstdint>

#include "penstock/kit/address.cuh"

namespace ps::kit {

struct alignas(8) Barrier {
  std::uint64_t word;

  // By one thread, followed by fence_barrier_init() and a barrier of everyone who will use it.
  __device__ void init(unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals)
                 : "memory");
  }

  // After the last use, before the memory becomes something else.
  __device__ void invalidate() {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(address()) : "memory");
  }

  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }

  // Arrives, and makes the phase wait for `bytes` that copies onto this barrier will bring.
  __device__ void arrive_expect(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }

  // More bytes for the current phase, without an arrival.
  __device__ void expect(unsigned bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }

  // Arrives at the same barrier in block `rank` of the cluster. Says nothing of what this thread
  // wrote, so that it costs no fence of the whole GPU: for giving back what was only read. Where
  // data is handed over, ClusterBarrier has the ordered form.
  __device__ void arrive_in(unsigned rank) {
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                     shared_address_in(address(), rank))
                 : "memory");
  }

  // Whether the phase of this parity has completed. The hardware may hold the thread for a while.
  __device__ bool try_wait(unsigned parity) {
    unsigned done;
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
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

  __device__ std::uint32_t address() const { return shared_address(this); }
};

}  // namespace ps::kit
