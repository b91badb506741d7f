// Kernels that are wrong on purpose, for compute-sanitizer to find: gpu_racy KERNEL. A checker that
// passes these checks nothing. Beside them the same ring used right, which it must pass.
#include <cstdio>
#include <cstring>

#include "penstock/kit/barrier.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/warp.cuh"

namespace {

using ps::kit::Barrier;

// One warp fills slots, another reads them. Without its wait the reader races the writer, and may
// only be given as many rounds as there are slots: it would run away from it.
constexpr unsigned depth = 2;

template <bool waits>
__global__ void through_ring(unsigned* out, unsigned rounds) {
  __shared__ ps::kit::Ring<Barrier, depth> ring;
  __shared__ unsigned slots[depth][32];
  if (threadIdx.x == 0) {
    ring.init(32, 32);
    ps::kit::fence_barrier_init();
  }
  __syncthreads();
  const unsigned lane = ps::kit::lane_index();
  if (ps::kit::warp_index() == 0) {
    ps::kit::Producer<Barrier, depth> producer(ring);
    for (unsigned round = 0; round < rounds; ++round) {
      slots[producer.acquire()][lane] = round;
      producer.commit();
    }
  } else {
    ps::kit::Consumer<Barrier, depth> consumer(ring);
    unsigned sum = 0;
    for (unsigned round = 0; round < rounds; ++round) {
      const unsigned slot = consumer.wait(!waits);  // true: as if it were known to be filled
      sum += slots[slot][lane ^ 1];
      consumer.release();
    }
    out[lane] = sum;
  }
}

// Half of a warp passes the block's barrier by and waits at the next. A checker does not object
// where they have returned instead: the barrier does not count who is gone.
__global__ void without_some(unsigned* out) {
  __shared__ unsigned words[64];
  words[threadIdx.x] = threadIdx.x;
  if (threadIdx.x < 40) {
    __syncthreads();
    out[threadIdx.x] = words[63 - threadIdx.x];
  }
  __syncthreads();
  out[threadIdx.x] += words[threadIdx.x];
}

// Arrives at a barrier that nobody made.
__global__ void without_init(unsigned* out) {
  __shared__ Barrier barrier;
  barrier.arrive();
  out[threadIdx.x] = threadIdx.x;
}

// Reads memory that nobody wrote.
__global__ void without_values(unsigned* out) { out[threadIdx.x] += threadIdx.x; }

}  // namespace

int main(int count, char** arguments) {
  const char* const kernel = count == 2 ? arguments[1] : "";
  unsigned* out = nullptr;
  if (cudaMalloc(&out, 64 * sizeof(unsigned)) != cudaSuccess) {
    std::fprintf(stderr, "no GPU\n");
    return 2;
  }
  if (std::strcmp(kernel, "right") == 0) {
    through_ring<true><<<1, 64>>>(out, 8);
  } else if (std::strcmp(kernel, "race") == 0) {
    through_ring<false><<<1, 64>>>(out, depth);
  } else if (std::strcmp(kernel, "divergence") == 0) {
    without_some<<<1, 64>>>(out);
  } else if (std::strcmp(kernel, "uninitialised") == 0) {
    without_init<<<1, 32>>>(out);
  } else if (std::strcmp(kernel, "unwritten") == 0) {
    without_values<<<1, 64>>>(out);
  } else {
    std::fprintf(stderr, "usage: gpu_racy right|race|divergence|uninitialised|unwritten\n");
    return 2;
  }
  // What they come to does not matter; that a checker stopped them is not an error of the program.
  const cudaError_t ended = cudaDeviceSynchronize();
  std::printf("%s: %s\n", kernel, cudaGetErrorString(ended));
  cudaFree(out);
  return 0;
}
