// The same with cuda::pipeline, which names the steps: acquire a slot (CUDA calls it a stage),
// copy, commit; wait for it, compute, release. A pipeline of one thread is cp.async's groups under
// another name. A pipeline of the block keeps one barrier per slot in shared memory: every thread
// takes part in every step, and may read what the others copied. That freedom is what the extra
// barriers buy.
#include <cooperative_groups.h>

#include <cuda/pipeline>

#include "copy/support/f.cuh"
#include "copy/support/grids.cuh"
#include "copy/support/rung.h"
#include "support/phases.cuh"

namespace {

using namespace ladder::copy;
using ladder::Phase;

constexpr unsigned threads = 256;
constexpr unsigned depth = 4;
constexpr auto vector_bytes = cuda::aligned_size_t<16>(sizeof(float4));

__global__ void __launch_bounds__(threads)
    of_a_thread(const float4* in, float4* out, std::size_t vectors, int rounds) {
  __shared__ float4 slots[depth][threads];
  cuda::pipeline<cuda::thread_scope_thread> pipeline = cuda::make_pipeline();
  const std::size_t stride = std::size_t{gridDim.x} * threads;
  std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;
  std::size_t ahead = i;

  const auto ask = [&](unsigned slot) {
    pipeline.producer_acquire();
    if (ahead < vectors) {
      cuda::memcpy_async(&slots[slot][threadIdx.x], in + ahead, vector_bytes, pipeline);
    }
    pipeline.producer_commit();
    ahead += stride;
  };
  for (unsigned slot = 0; slot + 1 < depth; ++slot) ask(slot);

  unsigned slot = 0;
  for (; i < vectors; i += stride) {
    ask((slot + depth - 1) % depth);
    cuda::pipeline_consumer_wait_prior<depth - 1>(pipeline);
    __stcs(out + i, f(slots[slot][threadIdx.x], rounds));
    pipeline.consumer_release();
    slot = (slot + 1) % depth;
  }
  cuda::pipeline_consumer_wait_prior<0>(pipeline);
}

template <bool traced = false>
__global__ void __launch_bounds__(threads)
    of_a_block(const float4* in, float4* out, std::size_t vectors, int rounds,
               ps::kit::TraceBuffer<traced> buffer) {
  __shared__ float4 slots[depth][threads];
// make_pipeline() below initialises it, whatever its constructor says.
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, depth> state;
  const auto block = cooperative_groups::this_thread_block();
  cuda::pipeline<cuda::thread_scope_block> pipeline = cuda::make_pipeline(block, &state);
  const std::size_t stride = std::size_t{gridDim.x} * threads;
  std::size_t first = std::size_t{blockIdx.x} * threads;  // the block's, not the thread's
  std::size_t ahead = first;
  ladder::Phases<traced, depth> phases(buffer);

  const auto ask = [&](unsigned slot) {
    if (ahead >= vectors) return;
    const std::size_t left = vectors - ahead;
    const unsigned count = left < threads ? static_cast<unsigned>(left) : threads;
    pipeline.producer_acquire();
    phases.ask(slot);
    cuda::memcpy_async(block, slots[slot], in + ahead,
                       cuda::aligned_size_t<16>(count * sizeof(float4)), pipeline);
    pipeline.producer_commit();
    ahead += stride;
  };
  for (unsigned slot = 0; slot + 1 < depth; ++slot) ask(slot);

  unsigned slot = 0;
  for (; first < vectors; first += stride) {
    ask((slot + depth - 1) % depth);
    pipeline.consumer_wait();
    phases.landed(slot);
    if (first + threadIdx.x < vectors) {
      __stcs(out + first + threadIdx.x,
             phases.end(Phase::compute, f(slots[slot][threadIdx.x], rounds)));
      phases.end(Phase::store);
    }
    pipeline.consumer_release();
    slot = (slot + 1) % depth;
  }
}

constexpr GridOptions grid{.grid = Grid::resident, .threads = threads, .piece = threads};

std::vector<Kernel> kernels() {
  return {over_vectors("one pipeline per thread, depth 4", of_a_thread, grid),
          over_vectors("one pipeline per block, depth 4", of_a_block<>, grid)};
}

std::vector<Traced> traced() {
  return {{.name = "pipeline", .kernel = [](const auto& buffer) {
             return over_vectors("traced", of_a_block<true>, grid, {}, {buffer});
           }}};
}

const ladder::Instructions machine{.holds = {"LDGSTS", "SYNCS"}};
PENSTOCK_COPY_RUNG("pipeline", "Asynchronous copies to shared memory, written with cuda::pipeline.",
                   machine, kernels, traced);

}  // namespace
