// A thread per element of C. Every thread reads a row of A and a row of B by itself, and neighbours
// read different rows of B: most of what a memory transaction brings is thrown away.
#include "gemm/support/gemm_rung.h"
#include "support/phases.cuh"

namespace {

using gemm::Problem;
using ladder::Phase;
using ps::kit::TraceBuffer;

template <bool traced = false>
__global__ void naive(Problem p, TraceBuffer<traced> buffer) {
  const unsigned row = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= p.m || column >= p.n) return;
  ladder::Phases<traced> phases(buffer);
  float sum = 0;
  for (unsigned k = 0; k < p.k; ++k) {
    sum += __bfloat162float(p.a[std::size_t{row} * p.k + k]) *
           __bfloat162float(p.b[std::size_t{column} * p.k + k]);
    if (traced && k % 32 == 31) {
      phases.end(Phase::load, sum);
      phases.end_turn();
    }
  }
  p.c[std::size_t{row} * p.n + column] = __float2bfloat16(sum);
}

template <bool traced>
void run_with(const Problem& p, cudaStream_t stream, const TraceBuffer<traced>& buffer) {
  const dim3 block(32, 8);
  const dim3 grid((p.n + 31) / 32, (p.m + 7) / 8);
  ps::kit::launch(naive<traced>, {.grid = grid, .block = block}, stream, p, buffer);
}
void run(const Problem& p, cudaStream_t stream) { run_with<false>(p, stream, {}); }

gemm::Traced traced() {
  return {.name = "naive",
          .roles = {"products"},
          .run = run_with<true>,
          .room = {.blocks = 16, .capacity = 256, .short_blocks = true}};
}

}  // namespace

const ladder::Instructions machine{.holds = {"FFMA"}};
PENSTOCK_GEMM_RUNG("naive", "One thread per element, which reads every operand from memory.",
                   machine, naive<>, 256, 0, run, traced);
