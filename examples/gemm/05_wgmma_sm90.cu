// wgmma and tensor copies, one after the other: one thread asks for a tile of A and one of B, all
// wait for them, and the warpgroup multiplies both from shared memory, without registers in
// between. Only other blocks of the multiprocessor hide the waiting.
#include "gemm/support/gemm_rung.h"
#include "gemm/support/plain_store.cuh"
#include "gemm/support/views.h"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/gemm/launch.cuh"
#include "support/phases.cuh"

namespace {

namespace kit = ps::kit;
using gemm::Problem;
using ladder::Phase;

// Configuration
constexpr unsigned tile_m = 128, tile_n = 128, tile_k = 64;
using TileA = kit::SharedTile<__nv_bfloat16, tile_m, tile_k>;
using TileB = kit::SharedTile<__nv_bfloat16, tile_n, tile_k>;

struct Shared {
  alignas(1024) unsigned char a[TileA::bytes];
  alignas(1024) unsigned char b[TileB::bytes];
  kit::Barrier full;
};

template <bool traced = false>
__global__ void __launch_bounds__(kit::warpgroup_threads)
    wgmma(const __grid_constant__ kit::TensorMap a, const __grid_constant__ kit::TensorMap b,
          Problem p, kit::TraceBuffer<traced> buffer) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    shared.full.init(1);
    kit::fence_barrier_init();
  }
  __syncthreads();

  const unsigned row = blockIdx.y * tile_m, column = blockIdx.x * tile_n;
  const auto tile_a = kit::Operand<TileA>::at(kit::shared_address(shared.a));
  const auto tile_b = kit::Operand<TileB>::at(kit::shared_address(shared.b));
  float upper[tile_n / 2], lower[tile_n / 2];  // 64 rows each
  const unsigned steps = (p.k + tile_k - 1) / tile_k;
  ladder::Phases<traced> phases(buffer);
  for (unsigned step = 0; step < steps; ++step) {
    if (threadIdx.x == 0) {
      shared.full.arrive_expect(TileA::bytes + TileB::bytes);
      kit::tensor_load(shared.a, a, shared.full, kit::evict_normal(), row, step * tile_k);
      kit::tensor_load(shared.b, b, shared.full, kit::evict_normal(), column, step * tile_k);
    }
    shared.full.wait(step % 2);
    phases.end(Phase::load);
    kit::wgmma_fence();
#pragma unroll
    for (unsigned k = 0; k < TileA::slices; ++k) {
      const bool add = step > 0 || k > 0;
      kit::multiply(upper, tile_a.slice(k), tile_b.slice(k), add);
      kit::multiply(lower, tile_a.from_row(64).slice(k), tile_b.slice(k), add);
    }
    kit::wgmma_commit();
    kit::wgmma_wait<0>(upper);
    kit::wgmma_wait<0>(lower);
    __syncthreads();  // all threads have read the tiles
    phases.end(Phase::compute);
    phases.end_turn();
  }
  gemm::store_plainly(p, upper, row, column);
  gemm::store_plainly(p, lower, row + 64, column);
  phases.end(Phase::store);
}

template <bool traced>
void run_with(const Problem& p, cudaStream_t stream, const kit::TraceBuffer<traced>& buffer) {
  const dim3 grid((p.n + tile_n - 1) / tile_n, (p.m + tile_m - 1) / tile_m);
  kit::launch(wgmma<traced>,
              {.grid = grid, .block = kit::warpgroup_threads, .shared_bytes = sizeof(Shared)},
              stream, kit::gemm_map(gemm::view_a(p), tile_m),
              kit::gemm_map(gemm::view_b(p), tile_n), p, buffer);
}
void run(const Problem& p, cudaStream_t stream) {
  if (!gemm::has_tensor_maps(p)) return gemm::mma_sync(p, stream);
  run_with<false>(p, stream, {});
}

gemm::Traced traced() {
  return {.name = "wgmma", .run = run_with<true>, .room = {.blocks = 16, .short_blocks = true}};
}

}  // namespace

const ladder::Instructions machine{.holds = {"HGMMA.64x128x16", "UTMALDG.2D"}};
PENSTOCK_GEMM_RUNG("wgmma",
                   "wgmma: a warpgroup multiplies in shared memory, after waiting for each load.",
                   machine, wgmma<>, kit::warpgroup_threads, sizeof(Shared), run, traced);
