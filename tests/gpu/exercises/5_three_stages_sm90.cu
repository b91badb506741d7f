// Exercise 5: a ring by hand. There is memory for three stages and there are barriers for three,
// but where a tile lies and which phase it waits for is still counted as for two.
#include "gpu/exercises/5_three_stages.h"
#include "gpu/lesson/lesson.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"

namespace ps::lesson {
namespace {

using namespace kit;

constexpr unsigned depth = 3;

// GAP: the stage of a tile, and the parity of the phase that fills it: 0 on the first round through
// the ring, 1 on the second, 0 on the third.
__device__ unsigned stage_of(unsigned tile) { return tile & 1; }
__device__ unsigned parity_of(unsigned tile) { return tile >> 1 & 1; }

// Those who compute begin when the loader is three tiles ahead; so it shows if it never is.
__device__ void await_loader(const volatile unsigned& asked, unsigned tiles) {
  unsigned long long deadline = 0;
  while (asked < depth && asked < tiles) {
    if (give_up(deadline, Stuck::not_ahead, patience_ns / 4)) return;
  }
}

__global__ void turned_round(Job job) {
  __shared__ alignas(128) uint4 stages[depth][threads];
  __shared__ PatientBarrier full[depth], empty[depth];
  __shared__ volatile unsigned asked;
  if (threadIdx.x == 0) {
    for (unsigned stage = 0; stage < depth; ++stage) {
      full[stage].init(1);
      empty[stage].init(threads);
    }
    fence_barrier_init();
    asked = 0;
  }
  spoil(stages);

  if (threadIdx.x == threads) {  // one thread loads
    for (unsigned tile = 0; tile < job.tiles; ++tile) {
      const unsigned stage = stage_of(tile);
      empty[stage].wait(parity_of(tile) ^ 1);  // on the first round nobody has to give it back
      full[stage].arrive_expect(sizeof(stages[stage]));
      bulk_load(stages[stage], from(job, tile), sizeof(stages[stage]), full[stage]);
      asked = tile + 1;
    }
  } else if (threadIdx.x < threads) {  // the first 128 compute
    await_loader(asked, job.tiles);
    for (unsigned tile = 0; tile < job.tiles; ++tile) {
      const unsigned stage = stage_of(tile);
      full[stage].wait(parity_of(tile));
      to(job, tile)[threadIdx.x] = stages[stage][threads - 1 - threadIdx.x];
      empty[stage].arrive();
    }
  }
}

}  // namespace

RunOptions three_stages() {
  return {.kernel = turned_round, .take_stuck = take_stuck, .block = threads + 32};
}

}  // namespace ps::lesson
