// Warp specialisation: some warps of a block load, some compute, some store.
#pragma once

#include "penstock/kit/fence.cuh"
#include "penstock/kit/warp.cuh"

namespace ps::kit {

enum class Role : unsigned char { loader, compute, storer };

// Assigns the warps of a block: loaders first, then compute, then storers. Any count may be 0. A
// kernel calls role() once and branches; roles pass data through a Ring.
template <unsigned loader_warps, unsigned compute_warps, unsigned storer_warps = 0>
struct Roles {
  static constexpr unsigned loader_threads = loader_warps * warp_threads;
  static constexpr unsigned compute_threads = compute_warps * warp_threads;
  static constexpr unsigned storer_threads = storer_warps * warp_threads;
  static constexpr unsigned threads = loader_threads + compute_threads + storer_threads;
  static_assert(threads > 0 && threads <= 1024, "a block has 1 to 1024 threads");

  __device__ static Role role() {
    const unsigned warp = warp_index();
    if (warp < loader_warps) return Role::loader;
    return warp < loader_warps + compute_warps ? Role::compute : Role::storer;
  }

  // This thread's index among the threads of its role.
  __device__ static unsigned index(Role role) {
    if (role == Role::loader) return threadIdx.x;
    if (role == Role::compute) return threadIdx.x - loader_threads;
    return threadIdx.x - loader_threads - compute_threads;
  }

  // A barrier of the threads of one role. Uses the named barriers 1 to 3.
  __device__ static void sync(Role role) {
    const unsigned count = role == Role::loader    ? loader_threads
                           : role == Role::compute ? compute_threads
                                                   : storer_threads;
    named_barrier_wait(1 + static_cast<unsigned>(role), count);
  }
};

// Moves registers between warpgroups: loaders need few, warpgroups with accumulators many. After
// the call each thread of the warpgroup has `registers` registers. All warps of the warpgroup call
// it once, when their role begins. The kernel needs __launch_bounds__(threads, 1).
template <unsigned registers>
__device__ inline void give_registers() {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256,
                "24 to 256 registers, in eights");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <unsigned registers>
__device__ inline void take_registers() {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256,
                "24 to 256 registers, in eights");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace ps::kit
