// A barrier of all blocks of a grid. All of them must run at once: launch with
// `all_blocks_at_once`, which the driver refuses when they do not fit.
#pragma once

#include <cstdint>

namespace ps::kit {

// A word in global memory, zero before the first use. It may be used again and again, by later
// launches too, one at a time.
class GridBarrier {
 public:
  __device__ explicit GridBarrier(std::uint32_t* word) : word_(word) {}

  // What any thread of the grid wrote before is visible to all after it.
  __device__ void wait() const {
    __syncthreads();
    if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) {
      __threadfence();
      // Together the blocks add 2^31: the top bit turns over with the last of them, and the rest of
      // the word is as before.
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
