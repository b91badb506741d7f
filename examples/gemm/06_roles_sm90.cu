// A warp that only loads, and a warpgroup that only multiplies, with a ring of five slots between
// them: tiles are on their way while the tensor cores work.
#include "gemm/support/gemm_rung.h"
#include "gemm/support/plain_store.cuh"
#include "gemm/support/views.h"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/gemm/launch.cuh"

namespace {

namespace kit = ps::kit;
using gemm::Problem;

// Configuration
constexpr unsigned tile_m = 128, tile_n = 128, tile_k = 64;
constexpr unsigned depth = 5;
template <bool traced>  // with one more warp, which sees loads land
constexpr unsigned threads = kit::warpgroup_threads + (traced ? 2 : 1) * kit::warp_threads;
using TileA = kit::SharedTile<__nv_bfloat16, tile_m, tile_k>;
using TileB = kit::SharedTile<__nv_bfloat16, tile_n, tile_k>;

// Shared storage
template <bool traced = false>
struct Shared : kit::GemmIssued<traced, depth> {
  alignas(1024) unsigned char a[depth][TileA::bytes];
  alignas(1024) unsigned char b[depth][TileB::bytes];
  kit::Ring<kit::Barrier, depth> ring;
};

// Loader: one thread
template <bool traced>
__device__ void load(Shared<traced>& shared, const kit::TensorMap& a, const kit::TensorMap& b,
                     unsigned row, unsigned column, unsigned steps) {
  kit::Producer producer(shared.ring);
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned slot = producer.acquire(TileA::bytes + TileB::bytes);
    if constexpr (traced) shared.issued[slot] = kit::SmSource::now();
    kit::Barrier& full = producer.full(slot);
    kit::tensor_load(shared.a[slot], a, full, kit::evict_normal(), row, step * tile_k);
    kit::tensor_load(shared.b[slot], b, full, kit::evict_normal(), column, step * tile_k);
  }
}

// Consumer: one warpgroup
template <bool traced>
__device__ void multiply(Shared<traced>& shared, float (&upper)[tile_n / 2],
                         float (&lower)[tile_n / 2], unsigned steps,
                         kit::GemmSteps<traced>& trace) {
  kit::Consumer consumer(shared.ring);
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned slot = trace.wait(consumer);
    const auto a = kit::Operand<TileA>::at(kit::shared_address(shared.a[slot]));
    const auto b = kit::Operand<TileB>::at(kit::shared_address(shared.b[slot]));
    kit::wgmma_fence();
#pragma unroll
    for (unsigned k = 0; k < TileA::slices; ++k) {
      const bool add = step > 0 || k > 0;
      kit::multiply(upper, a.slice(k), b.slice(k), add);
      kit::multiply(lower, a.from_row(64).slice(k), b.slice(k), add);
    }
    kit::wgmma_commit();
    // One step stays with the tensor cores; the one before has been read. One arrival is enough for
    // all 128 threads, which waited together.
    kit::wgmma_wait<1>();
    trace.all_but(1);
    if (step > 0) {
      if (threadIdx.x == 0) consumer.empty(consumer.oldest()).arrive();
      consumer.skip_release();
    }
  }
  kit::wgmma_wait<0>(upper);  // the last slot need not be released: the loader does not wait for it
  kit::wgmma_wait<0>(lower);
  trace.all_but(0);
}

template <bool traced = false>
__global__ void __launch_bounds__(threads<traced>, 1)
    roles(const __grid_constant__ kit::TensorMap a, const __grid_constant__ kit::TensorMap b,
          Problem p, kit::TraceBuffer<traced> buffer) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<traced>*>(memory);
  if (threadIdx.x == 0) {
    shared.ring.init(1, traced ? 2 : 1);
    kit::fence_barrier_init();
  }
  __syncthreads();

  const unsigned row = blockIdx.y * tile_m, column = blockIdx.x * tile_n;
  const unsigned steps = (p.k + tile_k - 1) / tile_k;
  kit::Trace<traced> trace(buffer);
  if (traced && kit::warp_index() == 5) {
    if (!kit::elect()) return;
    trace.begin(true);
    kit::Consumer landed(shared.ring);
    auto loads = trace.role(0, true);
    if constexpr (traced) kit::watch_loads(landed, loads, shared.issued, 0, steps);
    trace.end(true);
  } else if (kit::warpgroup_index() == 1) {
    if (kit::elect()) load(shared, a, b, row, column, steps);
  } else {
    auto products = trace.role(1, threadIdx.x == 0);
    auto stores = trace.role(2, threadIdx.x == 0);
    kit::GemmSteps<traced> seen(products);
    float upper[tile_n / 2], lower[tile_n / 2];
    multiply(shared, upper, lower, steps, seen);
    const auto start = stores.now();
    gemm::store_plainly(p, upper, row, column);
    gemm::store_plainly(p, lower, row + 64, column);
    stores.record(seen.last(), start);
  }
}

template <bool traced>
void run_with(const Problem& p, cudaStream_t stream, const kit::TraceBuffer<traced>& buffer) {
  const dim3 grid((p.n + tile_n - 1) / tile_n, (p.m + tile_m - 1) / tile_m);
  kit::launch(roles<traced>,
              {.grid = grid, .block = threads<traced>, .shared_bytes = sizeof(Shared<traced>)},
              stream, kit::gemm_map(gemm::view_a(p), tile_m),
              kit::gemm_map(gemm::view_b(p), tile_n), p, buffer);
}
void run(const Problem& p, cudaStream_t stream) {
  if (!gemm::has_tensor_maps(p)) return gemm::mma_sync(p, stream);
  run_with<false>(p, stream, {});
}

gemm::Traced traced() {
  return {.name = "roles",
          .roles = {"loader", "consumer", "stores"},
          .run = run_with<true>,
          .room = {.short_blocks = true}};
}

}  // namespace

const ladder::Instructions machine{.holds = {"HGMMA.64x128x16", "SYNCS.PHASECHK"}};
PENSTOCK_GEMM_RUNG("roles", "A loader and a consumer, with a ring of five slots between them.",
                   machine, roles<>, threads<false>, sizeof(Shared<>), run, traced);
