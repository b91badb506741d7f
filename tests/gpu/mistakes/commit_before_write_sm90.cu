// The slot is committed when it was acquired, not when it was written.
#include "gpu/lesson/lesson.cuh"
#include "gpu/mistakes/mistake.h"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/ring.h"

namespace ps::lesson {
namespace {

using namespace kit;

constexpr unsigned depth = 2;
using Slots = Ring<PatientBarrier, depth>;

// By all threads of the block: half of them fill slots, half of them use them.
__device__ void set_up(Slots& ring) {
  if (threadIdx.x == 0) {
    ring.init(threads, threads);
    fence_barrier_init();
  }
  __syncthreads();
}

// The half that reads slots, the same in both versions.
__device__ void use(const Job& job, Slots& ring, const uint4 (&slots)[depth][threads]) {
  const unsigned me = threadIdx.x - threads;
  Consumer<PatientBarrier, depth> consumer(ring);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    const unsigned slot = consumer.wait();
    to(job, tile)[me] = slots[slot][threads - 1 - me];
    consumer.release();
  }
}

__global__ void wrong(Job job) {
  __shared__ uint4 slots[depth][threads];
  __shared__ Slots ring;
  spoil(slots);
  set_up(ring);
  if (threadIdx.x >= threads) return use(job, ring, slots);
  Producer<PatientBarrier, depth> producer(ring);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    const unsigned slot = producer.acquire();
    producer.commit();  // the slot is acquired, but this declares it full
    come_late(job);
    slots[slot][threadIdx.x] = from(job, tile)[threadIdx.x];
  }
}

__global__ void right(Job job) {
  __shared__ uint4 slots[depth][threads];
  __shared__ Slots ring;
  spoil(slots);
  set_up(ring);
  if (threadIdx.x >= threads) return use(job, ring, slots);
  Producer<PatientBarrier, depth> producer(ring);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    const unsigned slot = producer.acquire();
    come_late(job);
    slots[slot][threadIdx.x] = from(job, tile)[threadIdx.x];
    producer.commit();
  }
}

const bool known = add({.name = "commit-before-write",
                        .wrong = wrong,
                        .right = right,
                        .take_stuck = take_stuck,
                        .capability = 90,
                        .block = 2 * threads});

}  // namespace
}  // namespace ps::lesson
