// Where everybody starts. A block loads its tile into shared memory, waits until all of it is
// there, and only then computes: the bytes go through registers on their way, and while they travel
// the block does nothing. What overlap there is comes from other blocks on the same multiprocessor.
// Beside it, the same without the stop in shared memory, which nothing here needs.
#include "copy/support/f.cuh"
#include "copy/support/grids.cuh"
#include "copy/support/rung.h"
#include "support/phases.cuh"

namespace {

using namespace ladder::copy;
using ladder::Phase;

constexpr unsigned threads = 256;
constexpr unsigned per_thread = 4;
constexpr unsigned tile = threads * per_thread;

template <bool traced = false>
__global__ void __launch_bounds__(threads)
    through_shared(Work work, ps::kit::TraceBuffer<traced> buffer) {
  __shared__ float staged[tile];
  const std::size_t first = std::size_t{blockIdx.x} * tile;
  ladder::Phases<traced> phases(buffer);

  // Copy.
#pragma unroll
  for (unsigned k = 0; k < per_thread; ++k) {
    const std::size_t i = first + k * threads + threadIdx.x;
    if (i < work.count) staged[k * threads + threadIdx.x] = work.in[i];
  }
  __syncthreads();
  phases.end(Phase::load);

  // Compute.
  float x[per_thread];
#pragma unroll
  for (unsigned k = 0; k < per_thread; ++k) x[k] = staged[k * threads + threadIdx.x];
  f(x, work.rounds);
  phases.end(Phase::compute, x);
#pragma unroll
  for (unsigned k = 0; k < per_thread; ++k) {
    const std::size_t i = first + k * threads + threadIdx.x;
    if (i < work.count) work.out[i] = x[k];
  }
  phases.end(Phase::store);
}

__global__ void __launch_bounds__(threads) direct(Work work) {
  const std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (i < work.count) work.out[i] = f(work.in[i], work.rounds);
}

constexpr GridOptions tiles{.threads = threads, .piece = tile};

std::vector<Kernel> kernels() {
  return {over_elements("through shared memory", through_shared<>, tiles),
          over_elements("straight from memory", direct, {.threads = threads, .piece = threads})};
}

std::vector<Traced> traced() {
  return {{.name = "synchronous",
           .kernel =
               [](const auto& buffer) {
                 return over_elements("traced", through_shared<true>, tiles, {buffer});
               },
           .room = {.blocks = 160, .capacity = 1, .short_blocks = true}}};
}

const ladder::Instructions machine{.holds = {"LDG", "STS", "LDS"}, .lacks = {"LDGSTS", "LDG.128"}};
PENSTOCK_COPY_RUNG("synchronous",
                   "A block copies, waits and computes; only other blocks fill the wait.", machine,
                   kernels, traced);

}  // namespace
