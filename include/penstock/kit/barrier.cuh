// An mbarrier in shared memory. A phase completes when all threads have arrived and all announced
// bytes have been copied; then the next phase begins. Ring is built on it.
#pragma once

#include <cstdint>

#include "penstock/kit/address.cuh"

namespace ps::kit {

struct alignas(8) Barrier {
  std::uint64_t word;

  // Call from one thread, then fence_barrier_init(), then synchronise all threads that use it.
  __device__ void init(unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals)
                 : "memory");
  }

  // Call after the last use, before the memory is reused for something else.
  __device__ void invalidate() {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(address()) : "memory");
  }

  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }

  // Arrives, and adds `bytes` to the bytes that the phase waits for.
  __device__ void arrive_expect(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }

  // Adds bytes to the current phase without arriving.
  __device__ void expect(unsigned bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }

  // Arrives at the same barrier in block `rank` of the cluster. Relaxed: it does not order this
  // thread's writes, which saves a GPU-wide fence. Use it to release slots that were only read;
  // ClusterBarrier::arrive_in() orders writes.
  __device__ void arrive_in(unsigned rank) {
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                     shared_address_in(address(), rank))
                 : "memory");
  }

  // Whether the phase of this parity has completed. May suspend the thread for a short time.
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

  // As try_wait(), but never suspends the thread: for one that watches several barriers.
  __device__ bool test_wait(unsigned parity) {
    unsigned done;
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(address()), "r"(parity)
        : "memory");
    return done != 0;
  }

  // Returns when the phase of this parity has completed. The first phase has parity 0.
  __device__ void wait(unsigned parity) {
    while (!try_wait(parity)) {
    }
  }

  __device__ std::uint32_t address() const { return shared_address(this); }
};

}  // namespace ps::kit
