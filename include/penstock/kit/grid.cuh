// A barrier of all blocks in a grid. All blocks must run concurrently: launch with
// `all_blocks_at_once`, which fails if they do not fit.
#pragma once

#include <cstdint>

namespace ps::kit {

// `word` is in global memory and zero before the first use. It can be reused, also by later
// launches, but not by two grids at the same time.
class GridBarrier {
 public:
  __device__ explicit GridBarrier(std::uint32_t* word) : word_(word) {}

  // All threads of the grid call this. Writes before it are visible to all threads after it.
  __device__ void wait() const {
    __syncthreads();
    if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) {
      __threadfence();
      // The blocks add 2^31 in total: the last one flips the top bit, and the other bits stay.
      const bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
      const std::uint32_t others = gridDim.x * gridDim.y * gridDim.z - 1;
      const std::uint32_t before = atomicAdd(word_, first ? turn - others : 1);
      while (((load() ^ before) & turn) == 0) {
      }
      __threadfence();
    }
    __syncthreads();
  }

 private:
  static constexpr std::uint32_t turn = 0x80000000u;

  __device__ std::uint32_t load() const {
    std::uint32_t value;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(word_) : "memory");
    return value;
  }

  std::uint32_t* word_;
};

}  // namespace ps::kit
