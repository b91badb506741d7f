// Warps with different work. One warp loads, eight compute, one stores, and they meet at three
// barriers: loaded, computed, stored. No thread waits for a copy that it could compute beside. But
// there is one buffer, so they still take turns: the loader may not touch it before it was stored.
// A barrier's phases alternate between parity 0 and 1; tile k ends phase k of each of them.
#include "copy/support/blocks.h"
#include "copy/support/rung.h"
#include "copy/support/tile.cuh"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/roles.cuh"
#include "penstock/kit/trace.cuh"
#include "support/kernel_use.cuh"

namespace {

using namespace ladder::copy;
using namespace ps::kit;

// Configuration.
constexpr unsigned compute_warps = 8;
using Team = Roles<1, compute_warps, 1>;
constexpr unsigned tile_bytes = 16 * 1024;

template <bool traced = false>
__global__ void __launch_bounds__(Team::threads) one_buffer(Work work, TraceBuffer<traced> buffer) {
  // Shared storage.
  __shared__ __align__(128) float4 tile[tile_bytes / sizeof(float4)];
  __shared__ Barrier loaded, computed, stored;

  // Setup.
  if (threadIdx.x == 0) {
    loaded.init(1);
    computed.init(compute_warps);
    stored.init(1);
    fence_barrier_init();
  }
  __syncthreads();

  const std::size_t bytes = work.count * sizeof(float);
  const std::size_t first = std::size_t{blockIdx.x} * tile_bytes;
  const std::size_t stride = std::size_t{gridDim.x} * tile_bytes;
  const auto bytes_at = [&](std::size_t at) {
    return bytes - at < tile_bytes ? static_cast<unsigned>(bytes - at) : tile_bytes;
  };
  unsigned parity = 0;

  // Roles.
  const Role role = Team::role();
  const bool signs = role == Role::compute && Team::index(role) == 0;
  Trace<traced> trace(buffer);
  trace.begin(signs);
  if (role == Role::loader) {
    if (!elect()) return;
    auto spans = trace.role(0, true);
    for (std::size_t at = first; at < bytes; at += stride, parity ^= 1) {
      stored.wait(parity ^ 1);  // the previous tile; for the first tile this returns at once
      const auto start = spans.now();
      loaded.arrive_expect(bytes_at(at));
      bulk_load(tile, reinterpret_cast<const unsigned char*>(work.in) + at, bytes_at(at), loaded,
                evict_first());
      if constexpr (traced) loaded.wait(parity);  // to see it land; there is nothing else to do
      spans.record(static_cast<unsigned>(at / tile_bytes), start);
    }
  } else if (role == Role::compute) {
    auto spans = trace.role(1, signs);
    for (std::size_t at = first; at < bytes; at += stride, parity ^= 1) {
      loaded.wait(parity);
      const auto start = spans.now();
      if (work.rounds > 0) {
        f_of_tile(tile, bytes_at(at) / sizeof(float4), work.rounds, Team::index(role),
                  Team::compute_threads);
        fence_shared_to_async();  // the copy engine reads what this thread wrote
      }
      __syncwarp();
      if (lane_index() == 0) computed.arrive();
      spans.record(static_cast<unsigned>(at / tile_bytes), start);
    }
  } else {
    if (!elect()) return;
    auto spans = trace.role(2, true);
    for (std::size_t at = first; at < bytes; at += stride, parity ^= 1) {
      computed.wait(parity);
      const auto start = spans.now();
      bulk_store(reinterpret_cast<unsigned char*>(work.out) + at, tile, bytes_at(at),
                 evict_first());
      bulk_commit();
      bulk_wait_read<0>();
      stored.arrive();
      spans.record(static_cast<unsigned>(at / tile_bytes), start);
    }
  }
  trace.end(signs);
}

template <bool traced = false>
Kernel make(Blocks blocks, TraceBuffer<traced> buffer = {}) {
  constexpr auto kernel = one_buffer<traced>;
  return {.label = name(blocks),
          .launch =
              [=](const Work& work, cudaStream_t stream) {
                launch_aligned(work, 4, stream, [&](const Work& aligned) {
                  const std::size_t tiles = (aligned.count * sizeof(float) - 1) / tile_bytes + 1;
                  LaunchOptions options{.block = Team::threads};
                  const std::size_t most = blocks == Blocks::one
                                               ? ladder::multiprocessors()
                                               : resident_clusters(kernel, options);
                  options.grid = static_cast<unsigned>(tiles < most ? tiles : most);
                  launch(kernel, options, stream, aligned, buffer);
                });
              },
          .use = [] { return ladder::kernel_use(kernel, Team::threads); },
          .hopper = true};
}

std::vector<Kernel> kernels() { return {make(Blocks::one), make(Blocks::resident)}; }

std::vector<Traced> traced() {
  return {{.name = "roles", .roles = role_names(), .kernel = [](const auto& buffer) {
             return make<true>(Blocks::one, buffer);
           }}};
}

const ladder::Instructions machine{.holds = {"UBLKCP.S.G", "UBLKCP.G.S", "SYNCS", "ELECT"},
                                   .lacks = {"LDG", "STG"}};
PENSTOCK_COPY_RUNG("roles", "Separate warps load, compute and store, and alternate on one buffer.",
                   machine, kernels, traced);

}  // namespace
