// Read as soon as it was asked for.
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
    cp_async<16>(&slot[threadIdx.x], from(job, tile) + threadIdx.x);
    cp_async_commit();
    __syncthreads();  // every thread has issued its copies; none has arrived
    to(job, tile)[threadIdx.x] = slot[threads - 1 - threadIdx.x];
    cp_async_wait<0>();
    __syncthreads();
  }
}

__global__ void right(Job job) {
  __shared__ uint4 slot[threads];
  spoil(slot);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    cp_async<16>(&slot[threadIdx.x], from(job, tile) + threadIdx.x);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();  // the copies of every thread have arrived
    to(job, tile)[threadIdx.x] = slot[threads - 1 - threadIdx.x];
    __syncthreads();
  }
}

const bool known =
    add({.name = "use-before-wait", .wrong = wrong, .right = right, .take_stuck = take_stuck});

}  // namespace
}  // namespace ps::lesson
