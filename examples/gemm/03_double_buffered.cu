// Each thread keeps 8x8 sums in registers, loads 16 bytes at a time, and fetches the next tiles
// into registers while it works on the current ones. What plain arithmetic units can do.
#include "gemm/support/gemm_rung.h"
#include "support/phases.cuh"

namespace {

using gemm::Problem;
using ladder::Phase;
using ps::kit::TraceBuffer;

constexpr unsigned tile = 128;  // of rows of A and of B
constexpr unsigned depth_k = 16;
constexpr unsigned threads = 256;
constexpr unsigned each = 8;  // sums per thread, squared

struct Shared {
  // K first: the eight values that a thread needs are adjacent.
  float a[2][depth_k][tile];
  float b[2][depth_k][tile];
};

// 256 threads take eight elements of K of 128 rows each.
struct Place {
  unsigned row = threadIdx.x / 2;
  unsigned k = threadIdx.x % 2 * 8;
};

__device__ void put(float (&to)[depth_k][tile], Place at, const float (&from)[8]) {
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) to[at.k + i][at.row] = from[i];
}

// A thread's eight lines are two fours, 64 apart: two 16-byte reads, of neighbouring fours in
// neighbouring threads.
__device__ unsigned line(unsigned e, unsigned thread) { return e / 4 * 64 + thread * 4 + e % 4; }

__device__ void take(float (&to)[each], const float (&from)[tile], unsigned thread) {
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    const float4 four = *reinterpret_cast<const float4*>(&from[half * 64 + thread * 4]);
    to[4 * half] = four.x, to[4 * half + 1] = four.y;
    to[4 * half + 2] = four.z, to[4 * half + 3] = four.w;
  }
}

template <bool traced = false>
__global__ void __launch_bounds__(threads, 2)
    double_buffered(Problem p, TraceBuffer<traced> buffer) {
  __shared__ __align__(16) Shared shared;
  const unsigned row = blockIdx.y * tile, column = blockIdx.x * tile;
  const Place at;
  const unsigned ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  float a[8], b[8];
  float sum[each][each] = {};
  ladder::Phases<traced> phases(buffer);

  phases.ask(0);
  gemm::eight_elements(a, p.a, row + at.row, at.k, p.m, p.k);
  gemm::eight_elements(b, p.b, column + at.row, at.k, p.n, p.k);
  put(shared.a[0], at, a);
  put(shared.b[0], at, b);
  phases.landed(0);
  __syncthreads();

  unsigned now = 0;
  for (unsigned k = 0; k < p.k; k += depth_k, now ^= 1) {
    const bool more = k + depth_k < p.k;
    if (more) {  // in flight while the sums are computed
      phases.ask(0);
      gemm::eight_elements(a, p.a, row + at.row, k + depth_k + at.k, p.m, p.k);
      gemm::eight_elements(b, p.b, column + at.row, k + depth_k + at.k, p.n, p.k);
    }
#pragma unroll
    for (unsigned i = 0; i < depth_k; ++i) {
      float x[each], y[each];
      take(x, shared.a[now][i], ty);
      take(y, shared.b[now][i], tx);
#pragma unroll
      for (unsigned r = 0; r < each; ++r) {
#pragma unroll
        for (unsigned c = 0; c < each; ++c) sum[r][c] += x[r] * y[c];
      }
    }
    phases.end(Phase::compute, sum[0][0]);
    phases.end_turn();
    if (more) {
      put(shared.a[now ^ 1], at, a);
      put(shared.b[now ^ 1], at, b);
      phases.landed(0);
    }
    __syncthreads();
  }

#pragma unroll
  for (unsigned r = 0; r < each; ++r) {
#pragma unroll
    for (unsigned c = 0; c < each; ++c) {
      gemm::put_element(p, row + line(r, ty), column + line(c, tx), sum[r][c]);
    }
  }
  phases.end(Phase::store);
}

template <bool traced>
void run_with(const Problem& p, cudaStream_t stream, const TraceBuffer<traced>& buffer) {
  const dim3 grid((p.n + tile - 1) / tile, (p.m + tile - 1) / tile);
  ps::kit::launch(double_buffered<traced>, {.grid = grid, .block = threads}, stream, p, buffer);
}
void run(const Problem& p, cudaStream_t stream) { run_with<false>(p, stream, {}); }

gemm::Traced traced() {
  return {.name = "double_buffered", .run = run_with<true>, .room = {.short_blocks = true}};
}

}  // namespace

const ladder::Instructions machine{.holds = {"LDG.128", "LDS.128"}};
PENSTOCK_GEMM_RUNG("double-buffered",
                   "The next tiles are loaded while each thread computes 64 sums.", machine,
                   double_buffered<>, threads, 0, run, traced);
