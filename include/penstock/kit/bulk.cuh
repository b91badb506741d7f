// One-dimensional bulk copies, each issued by one thread. Addresses and sizes are multiples of 16
// bytes. Needs compute capability 9.0.
#pragma once

#include <cstdint>

#include "penstock/kit/address.cuh"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/cache_hint.cuh"

namespace ps::kit {

// Copies global to shared memory. The bytes complete on `full`; announce them with arrive_expect().
__device__ inline void bulk_load(void* shared, const void* global, unsigned bytes, Barrier& full,
                                 CacheHint hint = evict_normal()) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(full.address()), "l"(hint.policy)
      : "memory");
}

// Copies to the same offset of shared memory in every block of the cluster whose bit is set in
// `blocks`. The bytes complete on `full` in each of these blocks.
__device__ inline void bulk_load_multicast(void* shared, const void* global, unsigned bytes,
                                           Barrier& full, std::uint16_t blocks,
                                           CacheHint hint = evict_normal()) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(full.address()), "h"(blocks), "l"(hint.policy)
      : "memory");
}

// Copies shared memory of this block to block `rank` of the cluster. The bytes complete on that
// block's `full`.
__device__ inline void bulk_send(void* shared_there, const void* shared_here, unsigned bytes,
                                 Barrier& full, unsigned rank) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(shared_address_in(shared_address(shared_there), rank)),
      "r"(shared_address(shared_here)), "r"(bytes), "r"(shared_address_in(full.address(), rank))
      : "memory");
}

// Copies shared to global memory. Call fence_shared_to_async() first if ordinary stores wrote the
// data, and bulk_commit() and bulk_wait() or bulk_wait_read() afterwards.
__device__ inline void bulk_store(void* global, const void* shared, unsigned bytes,
                                  CacheHint hint = evict_normal()) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
          global),
      "r"(shared_address(shared)), "r"(bytes), "l"(hint.policy)
      : "memory");
}

// Adds floats in shared memory to global memory. Commit and wait as for bulk_store().
__device__ inline void bulk_add(float* global, const float* shared, unsigned bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global),
      "r"(shared_address(shared)), "r"(bytes)
      : "memory");
}

// Prefetches global memory into the L2 cache.
__device__ inline void bulk_prefetch(const void* global, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

// Puts this thread's stores since the last commit into a group.
__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most the `pending` youngest groups still read shared memory. The memory that older
// groups read may be overwritten.
template <unsigned pending>
__device__ inline void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Waits until at most the `pending` youngest groups are not yet written to global memory.
template <unsigned pending>
__device__ inline void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace ps::kit
