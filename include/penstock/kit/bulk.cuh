// One-dimensional bulk copies: one thread moves kilobytes. Addresses and sizes are multiples of 16
// bytes. Compute capability 9.0.
#pragma once

#include <cstdint>

#include "penstock/kit/address.cuh"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/cache_hint.cuh"

namespace ps::kit {

// Global to shared memory. The bytes complete on `full`, which must expect them.
__device__ inline void bulk_load(void* shared, const void* global, unsigned bytes, Barrier& full,
                                 CacheHint hint = evict_normal()) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(full.address()), "l"(hint.policy)
      : "memory");
}

// The same bytes to the same place in every block of the cluster whose bit is set in `blocks`; they
// complete on `full` in each of them.
__device__ inline void bulk_load_multicast(void* shared, const void* global, unsigned bytes,
                                           Barrier& full, std::uint16_t blocks,
                                           CacheHint hint = evict_normal()) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(full.address()), "h"(blocks), "l"(hint.policy)
      : "memory");
}

// Shared memory of this block to that of block `rank`; the bytes complete on the barrier that lies
// there where `full` lies here.
__device__ inline void bulk_send(void* shared_there, const void* shared_here, unsigned bytes,
                                 Barrier& full, unsigned rank) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(shared_address_in(shared_address(shared_there), rank)),
      "r"(shared_address(shared_here)), "r"(bytes), "r"(shared_address_in(full.address(), rank))
      : "memory");
}

// Shared to global memory. What ordinary stores put there needs fence_shared_to_async() first.
__device__ inline void bulk_store(void* global, const void* shared, unsigned bytes,
                                  CacheHint hint = evict_normal()) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
          global),
      "r"(shared_address(shared)), "r"(bytes), "l"(hint.policy)
      : "memory");
}

// Adds floats of shared memory to global memory.
__device__ inline void bulk_add(float* global, const float* shared, unsigned bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global),
      "r"(shared_address(shared)), "r"(bytes)
      : "memory");
}

// Brings global memory into the L2 cache.
__device__ inline void bulk_prefetch(const void* global, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

// Closes the group of this thread's stores since the last commit.
__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most the youngest `pending` groups still read shared memory: what the others read
// may be overwritten.
template <unsigned pending>
__device__ inline void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Waits until at most the youngest `pending` groups are not yet written to global memory.
template <unsigned pending>
__device__ inline void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace ps::kit
