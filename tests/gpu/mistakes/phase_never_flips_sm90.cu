// Every tile waits for the phase of the first one.
#include "gpu/lesson/lesson.cuh"
#include "gpu/mistakes/mistake.h"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"

namespace ps::lesson {
namespace {

using namespace kit;

__global__ void wrong(Job job) {
  __shared__ alignas(128) uint4 slot[threads];
  __shared__ PatientBarrier full;
  if (threadIdx.x == 0) {
    full.init(1);
    fence_barrier_init();
  }
  spoil(slot);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    if (threadIdx.x == 0) {
      full.arrive_expect(sizeof(slot));
      bulk_load(slot, from(job, tile), sizeof(slot), full);
    }
    full.wait(0);  // for the second tile this phase has completed: no wait at all
    to(job, tile)[threadIdx.x] = slot[threads - 1 - threadIdx.x];
    linger(100'000);  // other work of a kernel; the copy arrives meanwhile
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
    if (threadIdx.x == 0) {
      full.arrive_expect(sizeof(slot));
      bulk_load(slot, from(job, tile), sizeof(slot), full);
    }
    full.wait(tile % 2);  // even and odd phases alternate
    to(job, tile)[threadIdx.x] = slot[threads - 1 - threadIdx.x];
    linger(100'000);
    __syncthreads();
  }
}

const bool known = add({.name = "phase-never-flips",
                        .wrong = wrong,
                        .right = right,
                        .take_stuck = take_stuck,
                        .capability = 90});

}  // namespace
}  // namespace ps::lesson
