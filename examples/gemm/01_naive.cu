// A thread per element of C. Every thread reads a row of A and a row of B by itself, and neighbours
// read different rows of B: most of what a memory transaction brings is thrown away.
#include "gemm/support/gemm_rung.h"

namespace {

using gemm::Problem;

__global__ void naive(Problem p) {
  const unsigned row = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= p.m || column >= p.n) return;
  float sum = 0;
  for (unsigned k = 0; k < p.k; ++k) {
    sum += __bfloat162float(p.a[std::size_t{row} * p.k + k]) *
           __bfloat162float(p.b[std::size_t{column} * p.k + k]);
  }
  p.c[std::size_t{row} * p.n + column] = __float2bfloat16(sum);
}

void run(const Problem& p, cudaStream_t stream) {
  const dim3 block(32, 8);
  const dim3 grid((p.n + 31) / 32, (p.m + 7) / 8);
  ps::kit::launch(naive, {.grid = grid, .block = block}, stream, p);
}

}  // namespace

const ladder::Instructions machine{.holds = {"FFMA"}};
PENSTOCK_GEMM_RUNG("naive", "A thread per element, every operand read from memory again and again.",
                   machine, naive, 256, 0, run);
