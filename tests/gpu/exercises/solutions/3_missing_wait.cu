// Exercise 3: a tile is used while the next one is on its way. One warp is made to come late, as
// any warp may.
#include "gpu/exercises/3_missing_wait.h"

#include "gpu/lesson/lesson.cuh"
#include "penstock/kit/cp_async.cuh"

namespace ps::lesson {
namespace {

using namespace kit;

constexpr unsigned depth = 2;

__global__ void turned_round(Job job) {
  __shared__ uint4 slots[depth][threads];
  spoil(slots);
  const auto ask = [&](unsigned tile) {
    if (tile < job.tiles) {
      cp_async<16>(&slots[tile % depth][threadIdx.x], from(job, tile) + threadIdx.x);
    }
    cp_async_commit();
  };
  ask(0);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    come_late(job);
    ask(tile + 1);
    cp_async_wait<1>();  // what this thread asked for of the tile has landed;
    __syncthreads();     // and what the others did
    to(job, tile)[threadIdx.x] = slots[tile % depth][threads - 1 - threadIdx.x];
    __syncthreads();  // all threads have read it: its slot may be filled again
  }
  cp_async_wait<0>();
}

}  // namespace

RunOptions missing_wait() { return {.kernel = turned_round, .take_stuck = take_stuck}; }

}  // namespace ps::lesson
