// A block brings a tile of A and one of B into shared memory, and every element there is used 32
// times.
#include "gemm/support/gemm_rung.h"
#include "support/phases.cuh"

namespace {

using gemm::Problem;
using ladder::Phase;
using ps::kit::TraceBuffer;

constexpr unsigned tile = 32;

template <bool traced = false>
__global__ void shared_memory(Problem p, TraceBuffer<traced> buffer) {
  __shared__ float a[tile][tile + 1];  // one more column: no bank conflicts
  __shared__ float b[tile][tile + 1];
  const unsigned row = blockIdx.y * tile + threadIdx.y;
  const unsigned column = blockIdx.x * tile + threadIdx.x;
  const unsigned row_of_b = blockIdx.x * tile + threadIdx.y;
  ladder::Phases<traced> phases(buffer);
  float sum = 0;
  for (unsigned k = 0; k < p.k; k += tile) {
    // Neighbouring threads read neighbouring elements, of B too.
    const unsigned at = k + threadIdx.x;
    a[threadIdx.y][threadIdx.x] = gemm::element(p.a, row, at, p.m, p.k);
    b[threadIdx.y][threadIdx.x] = gemm::element(p.b, row_of_b, at, p.n, p.k);
    __syncthreads();
    phases.end(Phase::load);
#pragma unroll
    for (unsigned i = 0; i < tile; ++i) sum += a[threadIdx.y][i] * b[threadIdx.x][i];
    __syncthreads();  // before the next tiles overwrite these
    phases.end(Phase::compute);
    phases.end_turn();
  }
  if (row < p.m && column < p.n) p.c[std::size_t{row} * p.n + column] = __float2bfloat16(sum);
  phases.end(Phase::store);
}

template <bool traced>
void run_with(const Problem& p, cudaStream_t stream, const TraceBuffer<traced>& buffer) {
  const dim3 grid((p.n + tile - 1) / tile, (p.m + tile - 1) / tile);
  ps::kit::launch(shared_memory<traced>, {.grid = grid, .block = dim3(tile, tile)}, stream, p,
                  buffer);
}
void run(const Problem& p, cudaStream_t stream) { run_with<false>(p, stream, {}); }

gemm::Traced traced() {
  return {.name = "shared_memory", .run = run_with<true>, .room = {.short_blocks = true}};
}

}  // namespace

const ladder::Instructions machine{.holds = {"LDS"}};
PENSTOCK_GEMM_RUNG("shared-memory",
                   "Tiles in shared memory: each element that is read is used 32 times.", machine,
                   shared_memory<>, tile* tile, 0, run, traced);
