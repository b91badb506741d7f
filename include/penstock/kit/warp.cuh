// Indices of a thread's warp and warpgroup, for one-dimensional blocks.
#pragma once

#include <cstdint>

namespace ps::kit {

constexpr unsigned warp_threads = 32;
constexpr unsigned warpgroup_threads = 128;

__device__ inline unsigned lane_index() { return threadIdx.x % warp_threads; }

// The shuffle lets the compiler see that the index is uniform in the warp. All 32 threads must call
// it: in a branch that only some of them take, it hangs.
__device__ inline unsigned warp_index() {
  return __shfl_sync(0xffffffffu, threadIdx.x / warp_threads, 0);
}
__device__ inline unsigned warpgroup_index() {
  return __shfl_sync(0xffffffffu, threadIdx.x / warpgroup_threads, 0);
}

// True in one thread of the warp, always the same one. All 32 threads must call it.
__device__ inline bool elect() {
  unsigned elected;
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, elected;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

}  // namespace ps::kit
