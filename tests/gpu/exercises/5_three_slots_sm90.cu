// Exercise 5: a ring by hand. There is memory for three slots and there are barriers for three,
// but where a tile lies and which phase it waits for is still counted as for two.
#include "gpu/exercises/5_three_slots.h"
#include "gpu/lesson/lesson.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"

namespace ps::lesson {
namespace {

using namespace kit;

constexpr unsigned depth = 3;

// GAP: the slot of a tile, and the parity of the phase that fills it: 0 on the first round through
// the ring, 1 on the second, 0 on the third.
__device__ unsigned slot_of(unsigned tile) { return tile & 1; }
__device__ unsigned parity_of(unsigned tile) { return tile >> 1 & 1; }

// Those who compute begin when the loader is three tiles ahead; so it shows if it never is.
__device__ void await_loader(const volatile unsigned& asked, unsigned tiles) {
  unsigned long long deadline = 0;
  while (asked < depth && asked < tiles) {
    if (give_up(deadline, Stuck::not_ahead, patience_ns / 4)) return;
  }
}

__global__ void turned_round(Job job) {
  __shared__ alignas(128) uint4 slots[depth][threads];
  __shared__ PatientBarrier full[depth], empty[depth];
  __shared__ volatile unsigned asked;
  if (threadIdx.x == 0) {
    for (unsigned slot = 0; slot < depth; ++slot) {
      full[slot].init(1);
      empty[slot].init(threads);
    }
    fence_barrier_init();
    asked = 0;
  }
  spoil(slots);

  if (threadIdx.x == threads) {  // one thread loads
    for (unsigned tile = 0; tile < job.tiles; ++tile) {
      const unsigned slot = slot_of(tile);
      empty[slot].wait(parity_of(tile) ^ 1);  // in the first round this returns at once
      full[slot].arrive_expect(sizeof(slots[slot]));
      bulk_load(slots[slot], from(job, tile), sizeof(slots[slot]), full[slot]);
      asked = tile + 1;
    }
  } else if (threadIdx.x < threads) {  // the first 128 compute
    await_loader(asked, job.tiles);
    for (unsigned tile = 0; tile < job.tiles; ++tile) {
      const unsigned slot = slot_of(tile);
      full[slot].wait(parity_of(tile));
      to(job, tile)[threadIdx.x] = slots[slot][threads - 1 - threadIdx.x];
      empty[slot].arrive();
    }
  }
}

}  // namespace

RunOptions three_slots() {
  return {.kernel = turned_round, .take_stuck = take_stuck, .block = threads + 32};
}

}  // namespace ps::lesson
