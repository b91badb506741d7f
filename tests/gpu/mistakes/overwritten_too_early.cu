// The next tile is asked for while another warp still reads this one.
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
    cp_async_wait<0>();
    __syncthreads();
    come_late(job);
    to(job, tile)[threadIdx.x] = slot[threads - 1 - threadIdx.x];
  }  // next iteration: this thread is done with the slot
}

__global__ void right(Job job) {
  __shared__ uint4 slot[threads];
  spoil(slot);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    cp_async<16>(&slot[threadIdx.x], from(job, tile) + threadIdx.x);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    come_late(job);
    to(job, tile)[threadIdx.x] = slot[threads - 1 - threadIdx.x];
    __syncthreads();  // every thread is done with the slot
  }
}

const bool known = add(
    {.name = "overwritten-too-early", .wrong = wrong, .right = right, .take_stuck = take_stuck});

}  // namespace
}  // namespace ps::lesson
