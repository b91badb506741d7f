// Behind the last tile nothing is asked for, no group is made, and the count of groups is off by
// one.
#include "gpu/lesson/lesson.cuh"
#include "gpu/mistakes/mistake.h"
#include "penstock/kit/cp_async.cuh"

namespace ps::lesson {
namespace {

using namespace kit;

constexpr unsigned depth = 2;

// Copies a tile and commits a group, but only if there is a tile.
__device__ void ask_or_not(const Job& job, uint4 (&slots)[depth][threads], unsigned tile) {
  if (tile >= job.tiles) return;
  cp_async<16>(&slots[tile % depth][threadIdx.x], from(job, tile) + threadIdx.x);
  cp_async_commit();
}

__global__ void wrong(Job job) {
  __shared__ uint4 slots[depth][threads];
  spoil(slots);
  ask_or_not(job, slots, 0);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    ask_or_not(job, slots, tile + 1);
    cp_async_wait<depth - 1>();  // at the last tile the most recent group is this one
    __syncthreads();
    to(job, tile)[threadIdx.x] = slots[tile % depth][threads - 1 - threadIdx.x];
    __syncthreads();
  }
  cp_async_wait<0>();
}

// Commits one group per call, empty or not: the number of groups is the number of tiles.
__device__ void ask(const Job& job, uint4 (&slots)[depth][threads], unsigned tile) {
  if (tile < job.tiles) {
    cp_async<16>(&slots[tile % depth][threadIdx.x], from(job, tile) + threadIdx.x);
  }
  cp_async_commit();
}

__global__ void right(Job job) {
  __shared__ uint4 slots[depth][threads];
  spoil(slots);
  ask(job, slots, 0);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    ask(job, slots, tile + 1);
    cp_async_wait<depth - 1>();
    __syncthreads();
    to(job, tile)[threadIdx.x] = slots[tile % depth][threads - 1 - threadIdx.x];
    __syncthreads();
  }
  cp_async_wait<0>();
}

// One tile a block: its last is its first, and nothing was waited for before.
const bool known = add({.name = "wait-at-the-tail",
                        .wrong = wrong,
                        .right = right,
                        .take_stuck = take_stuck,
                        .tiles = 1});

}  // namespace
}  // namespace ps::lesson
