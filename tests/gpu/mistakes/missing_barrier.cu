// A thread waits for its own copies and reads another thread's.
#include "gpu/lesson/lesson.cuh"
#include "gpu/mistakes/mistake.h"
#include "penstock/kit/cp_async.cuh"

namespace ps::lesson {
namespace {

using namespace kit;

__global__ void wrong(Job job) {
  __shared__ uint4 slot[threads];
  spoil(slot);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    come_late(job);
    cp_async<16>(&slot[threadIdx.x], from(job, tile) + threadIdx.x);
    cp_async_commit();
    cp_async_wait<0>();
    to(job, tile)[threadIdx.x] = slot[threads - 1 - threadIdx.x];  // copied by another warp
    __syncthreads();
  }
}

__global__ void right(Job job) {
  __shared__ uint4 slot[threads];
  spoil(slot);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    come_late(job);
    cp_async<16>(&slot[threadIdx.x], from(job, tile) + threadIdx.x);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();  // every thread has waited for its own copies
    to(job, tile)[threadIdx.x] = slot[threads - 1 - threadIdx.x];
    __syncthreads();
  }
}

const bool known =
    add({.name = "missing-barrier", .wrong = wrong, .right = right, .take_stuck = take_stuck});

}  // namespace
}  // namespace ps::lesson
