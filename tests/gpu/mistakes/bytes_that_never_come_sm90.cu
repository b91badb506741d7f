// The last tile is shorter than the others, what is announced is not.
#include "gpu/lesson/lesson.cuh"
#include "gpu/mistakes/mistake.h"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"

namespace ps::lesson {
namespace {

using namespace kit;

__device__ unsigned vectors_of(const Job& job, unsigned tile) {
  return tile + 1 == job.tiles ? job.last : threads;
}

__global__ void wrong(Job job) {
  __shared__ alignas(128) uint4 slot[threads];
  __shared__ PatientBarrier full;
  if (threadIdx.x == 0) {
    full.init(1);
    fence_barrier_init();
  }
  spoil(slot);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    const unsigned count = vectors_of(job, tile);
    if (threadIdx.x == 0) {
      full.arrive_expect(sizeof(slot));
      bulk_load(slot, from(job, tile), count * sizeof(uint4), full);
    }
    full.wait(tile % 2);
    if (threadIdx.x < count) to(job, tile)[threadIdx.x] = slot[count - 1 - threadIdx.x];
    __syncthreads();
  }
}

__global__ void right(Job job) {
  __shared__ alignas(128) uint4 slot[threads];
  __shared__ PatientBarrier full;
  if (threadIdx.x == 0) {
    full.init(1);
    fence_barrier_init();
  }
  spoil(slot);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    const unsigned count = vectors_of(job, tile);
    if (threadIdx.x == 0) {
      full.arrive_expect(count * sizeof(uint4));
      bulk_load(slot, from(job, tile), count * sizeof(uint4), full);
    }
    full.wait(tile % 2);
    if (threadIdx.x < count) to(job, tile)[threadIdx.x] = slot[count - 1 - threadIdx.x];
    __syncthreads();
  }
}

const bool known = add({.name = "bytes-that-never-come",
                        .wrong = wrong,
                        .right = right,
                        .take_stuck = take_stuck,
                        .capability = 90,
                        .last = 97});

}  // namespace
}  // namespace ps::lesson
