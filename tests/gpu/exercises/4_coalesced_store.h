#pragma once

#include <cuda_runtime_api.h>

namespace ps::lesson {

constexpr unsigned side = 32;  // of a tile, and threads of a block along both of its sides

// A matrix that counts how it is written to.
struct Counted {
  float* data;
  unsigned long long* stores;  // by warps
  unsigned long long* lines;   // of 128 bytes that these stores touched

#if defined(__CUDACC__)
  __device__ void store(unsigned index, float value) const {
    const unsigned storing = __activemask();
    const unsigned same_line = __match_any_sync(storing, index / 32);
    const unsigned me = 1U << (threadIdx.x + blockDim.x * threadIdx.y) % 32;
    if ((storing & (me - 1)) == 0) atomicAdd(stores, 1ULL);
    if ((same_line & (me - 1)) == 0) atomicAdd(lines, 1ULL);
    data[index] = value;
  }
#endif
};

// out = in transposed: square matrices of `tiles` x `tiles` tiles.
void transpose(const float* in, const Counted& out, unsigned tiles, cudaStream_t stream);

}  // namespace ps::lesson
