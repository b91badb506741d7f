// A barrier takes eight bytes, and the slot behind it begins at no multiple of sixteen.
#include "gpu/lesson/lesson.cuh"
#include "gpu/mistakes/mistake.h"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"

namespace ps::lesson {
namespace {

using namespace kit;

struct alignas(16) Crooked {
  PatientBarrier full;
  uint2 slot[2 * threads];
};

struct Straight {
  PatientBarrier full;
  alignas(128) uint2 slot[2 * threads];
};

// One kernel for both: they differ only in the alignment of the slot.
template <class Storage>
__global__ void through(Job job) {
  __shared__ Storage storage;
  if (threadIdx.x == 0) {
    storage.full.init(1);
    fence_barrier_init();
  }
  spoil(storage.slot);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    if (threadIdx.x == 0) {
      storage.full.arrive_expect(sizeof(storage.slot));
      bulk_load(storage.slot, from(job, tile), sizeof(storage.slot), storage.full);
    }
    storage.full.wait(tile % 2);
    auto* const out = reinterpret_cast<uint2*>(to(job, tile) + threadIdx.x);
    const uint2* const there = storage.slot + 2 * (threads - 1 - threadIdx.x);
    out[0] = there[0];
    out[1] = there[1];
    __syncthreads();
  }
}

const bool known = add({.name = "misaligned-bulk",
                        .wrong = through<Crooked>,
                        .right = through<Straight>,
                        .take_stuck = take_stuck,
                        .capability = 90,
                        .shows = Shows::loses_device});

}  // namespace
}  // namespace ps::lesson
