// The copy has its barrier, but the barrier does not know of the copy.
#include "gpu/lesson/lesson.cuh"
#include "gpu/mistakes/mistake.h"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"

namespace ps::lesson {
namespace {

using namespace kit;

// Without the barrier it does not compile.
template <class... Argument>
concept loads = requires(Argument... argument) { bulk_load(argument...); };
static_assert(loads<void*, const void*, unsigned, Barrier&>);
static_assert(!loads<void*, const void*, unsigned>);

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
      full.arrive();  // the only arrival: the phase completes, whatever the copy does
      bulk_load(slot, from(job, tile), sizeof(slot), full);
    }
    full.wait(tile % 2);
    to(job, tile)[threadIdx.x] = slot[threads - 1 - threadIdx.x];
    __syncthreads();
  }
  linger(100'000);  // no copy may be in flight when the block ends
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
      full.arrive_expect(sizeof(slot));  // the arrival, and the announced bytes
      bulk_load(slot, from(job, tile), sizeof(slot), full);
    }
    full.wait(tile % 2);
    to(job, tile)[threadIdx.x] = slot[threads - 1 - threadIdx.x];
    __syncthreads();
  }
}

// One tile a block. A second one would find bytes that nobody expected, and wait for ever.
const bool known = add({.name = "bulk-without-expect",
                        .wrong = wrong,
                        .right = right,
                        .take_stuck = take_stuck,
                        .capability = 90,
                        .tiles = 1});

}  // namespace
}  // namespace ps::lesson
