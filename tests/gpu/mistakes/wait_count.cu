// Two slots, so two groups may be on their way; but one of the two is the one that is read.
#include "gpu/lesson/lesson.cuh"
#include "gpu/mistakes/mistake.h"
#include "penstock/kit/cp_async.cuh"

namespace ps::lesson {
namespace {

using namespace kit;

constexpr unsigned depth = 2;

// Copies a tile, or nothing after the last one; commits a group in both cases.
__device__ void ask(const Job& job, uint4 (&slots)[depth][threads], unsigned tile) {
  if (tile < job.tiles) {
    cp_async<16>(&slots[tile % depth][threadIdx.x], from(job, tile) + threadIdx.x);
  }
  cp_async_commit();
}

__global__ void wrong(Job job) {
  __shared__ uint4 slots[depth][threads];
  spoil(slots);
  ask(job, slots, 0);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    ask(job, slots, tile + 1);
    cp_async_wait<depth>();  // up to two may still be in flight, including this tile
    __syncthreads();
    to(job, tile)[threadIdx.x] = slots[tile % depth][threads - 1 - threadIdx.x];
    __syncthreads();
  }
  cp_async_wait<0>();
}

__global__ void right(Job job) {
  __shared__ uint4 slots[depth][threads];
  spoil(slots);
  ask(job, slots, 0);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    ask(job, slots, tile + 1);
    cp_async_wait<depth - 1>();  // all but the most recent have arrived
    __syncthreads();
    to(job, tile)[threadIdx.x] = slots[tile % depth][threads - 1 - threadIdx.x];
    __syncthreads();
  }
  cp_async_wait<0>();
}

const bool known =
    add({.name = "wait-count", .wrong = wrong, .right = right, .take_stuck = take_stuck});

}  // namespace
}  // namespace ps::lesson
