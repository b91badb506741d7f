// Every thread has a pipeline of its own, and reads what came through another's.
#include <cooperative_groups.h>

#include <cuda/pipeline>
#include <type_traits>

#include "gpu/lesson/lesson.cuh"
#include "gpu/mistakes/mistake.h"

namespace ps::lesson {
namespace {

constexpr auto vector_bytes = cuda::aligned_size_t<16>(sizeof(uint4));

// One of the block cannot be declared like a variable: it is made from a state in shared memory.
static_assert(!std::is_default_constructible_v<cuda::pipeline<cuda::thread_scope_block>>);

__global__ void wrong(Job job) {
  __shared__ uint4 slot[threads];
  spoil(slot);
  cuda::pipeline<cuda::thread_scope_thread> pipeline = cuda::make_pipeline();
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    come_late(job);
    pipeline.producer_acquire();
    cuda::memcpy_async(&slot[threadIdx.x], from(job, tile) + threadIdx.x, vector_bytes, pipeline);
    pipeline.producer_commit();
    pipeline.consumer_wait();  // for the copies of this thread
    to(job, tile)[threadIdx.x] = slot[threads - 1 - threadIdx.x];
    pipeline.consumer_release();
  }
}

__global__ void right(Job job) {
  __shared__ uint4 slot[threads];
// make_pipeline() below initialises it, whatever its constructor says.
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state;
  spoil(slot);
  const auto block = cooperative_groups::this_thread_block();
  cuda::pipeline<cuda::thread_scope_block> pipeline = cuda::make_pipeline(block, &state);
  for (unsigned tile = 0; tile < job.tiles; ++tile) {
    come_late(job);
    pipeline.producer_acquire();  // when all threads have released the slot
    cuda::memcpy_async(&slot[threadIdx.x], from(job, tile) + threadIdx.x, vector_bytes, pipeline);
    pipeline.producer_commit();
    pipeline.consumer_wait();  // for the copies of all threads
    to(job, tile)[threadIdx.x] = slot[threads - 1 - threadIdx.x];
    pipeline.consumer_release();
  }
}

const bool known =
    add({.name = "pipeline-per-thread", .wrong = wrong, .right = right, .take_stuck = take_stuck});

}  // namespace
}  // namespace ps::lesson
