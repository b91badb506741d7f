// Threads write a result, and the copy engine stores it without a fence between them.
#include "gpu/lesson/lesson.cuh"
#include "gpu/mistakes/mistake.h"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"

namespace ps::lesson {
namespace {

using namespace kit;

__global__ void wrong(Job job) {
  __shared__ alignas(128) uint4 result[threads];
  spoil(result);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    result[threadIdx.x] = from(job, tile)[threads - 1 - threadIdx.x];
    __syncthreads();  // the threads see it; the copy engine may not
    if (threadIdx.x == 0) {
      bulk_store(to(job, tile), result, sizeof(result));
      bulk_commit();
      bulk_wait_read<0>();
    }
    __syncthreads();
  }
}

__global__ void right(Job job) {
  __shared__ alignas(128) uint4 result[threads];
  spoil(result);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    result[threadIdx.x] = from(job, tile)[threads - 1 - threadIdx.x];
    fence_shared_to_async();  // by every thread that wrote, before the barrier
    __syncthreads();
    if (threadIdx.x == 0) {
      bulk_store(to(job, tile), result, sizeof(result));
      bulk_commit();
      bulk_wait_read<0>();
    }
    __syncthreads();
  }
}

const bool known = add({.name = "missing-proxy-fence",
                        .wrong = wrong,
                        .right = right,
                        .take_stuck = take_stuck,
                        .capability = 90,
                        .shows = Shows::perhaps});

}  // namespace
}  // namespace ps::lesson
