// The same roles around two buffers: while one is computed on, the other is stored and filled. Each
// buffer has its three barriers, and tile k ends phase k / 2 of those of buffer k % 2. Three roles
// want three buffers, so that somebody still waits; and with more than two, counting phases by hand
// stops being pleasant.
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
template <bool traced>
using TeamOf = Roles<1, compute_warps, traced ? 2 : 1>;  // traced, one more warp sees loads land
constexpr unsigned tile_bytes = 16 * 1024;

template <bool traced = false>
__global__ void __launch_bounds__(TeamOf<traced>::threads)
    two_buffers(Work work, TraceBuffer<traced> buffer) {
  using Team = TeamOf<traced>;

  // Shared storage.
  __shared__ __align__(128) float4 tiles[2][tile_bytes / sizeof(float4)];
  __shared__ Barrier loaded[2], computed[2], stored[2];
  __shared__ std::uint64_t issued[2];  // when a load began, for the trace

  // Setup.
  if (threadIdx.x == 0) {
    for (unsigned b = 0; b < 2; ++b) {
      loaded[b].init(1);
      computed[b].init(compute_warps);
      stored[b].init(traced ? 2 : 1);
    }
    fence_barrier_init();
  }
  __syncthreads();

  const std::size_t bytes = work.count * sizeof(float);
  const std::size_t first = std::size_t{blockIdx.x} * tile_bytes;
  const std::size_t stride = std::size_t{gridDim.x} * tile_bytes;
  const auto bytes_at = [&](std::size_t at) {
    return bytes - at < tile_bytes ? static_cast<unsigned>(bytes - at) : tile_bytes;
  };
  unsigned b = 0, parity = 0;
  const auto next = [&] {
    parity ^= b;
    b ^= 1;
  };

  // Roles.
  const Role role = Team::role();
  const bool signs = role == Role::compute && Team::index(role) == 0;
  Trace<traced> trace(buffer);
  trace.begin(signs);
  if (role == Role::loader) {
    if (!elect()) return;
    for (std::size_t at = first; at < bytes; at += stride, next()) {
      stored[b].wait(parity ^ 1);
      if constexpr (traced) issued[b] = SmSource::now();
      loaded[b].arrive_expect(bytes_at(at));
      bulk_load(tiles[b], reinterpret_cast<const unsigned char*>(work.in) + at, bytes_at(at),
                loaded[b], evict_first());
    }
  } else if (role == Role::compute) {
    auto spans = trace.role(1, signs);
    for (std::size_t at = first; at < bytes; at += stride, next()) {
      loaded[b].wait(parity);
      const auto start = spans.now();
      if (work.rounds > 0) {
        f_of_tile(tiles[b], bytes_at(at) / sizeof(float4), work.rounds, Team::index(role),
                  Team::compute_threads);
        fence_shared_to_async();
      }
      __syncwarp();
      if (lane_index() == 0) computed[b].arrive();
      spans.record(static_cast<unsigned>(at / tile_bytes), start);
    }
  } else if (!traced || Team::index(role) < warp_threads) {
    if (!elect()) return;
    auto spans = trace.role(2, true);
    for (std::size_t at = first; at < bytes; at += stride, next()) {
      computed[b].wait(parity);
      const auto start = spans.now();
      bulk_store(reinterpret_cast<unsigned char*>(work.out) + at, tiles[b], bytes_at(at),
                 evict_first());
      bulk_commit();
      bulk_wait_read<0>();
      stored[b].arrive();
      spans.record(static_cast<unsigned>(at / tile_bytes), start);
    }
  } else if (traced && elect()) {
    // The watcher. It arrives with the storer, so that no load passes it by.
    auto spans = trace.role(0, true);
    for (std::size_t at = first; at < bytes; at += stride, next()) {
      loaded[b].wait(parity);
      if constexpr (traced) spans.record(static_cast<unsigned>(at / tile_bytes), issued[b]);
      stored[b].arrive();
    }
  }
  trace.end(signs);
}

template <bool traced = false>
Kernel make(Blocks blocks, TraceBuffer<traced> buffer = {}) {
  constexpr auto kernel = two_buffers<traced>;
  return {.label = name(blocks),
          .launch =
              [=](const Work& work, cudaStream_t stream) {
                launch_aligned(work, 4, stream, [&](const Work& aligned) {
                  const std::size_t all = (aligned.count * sizeof(float) - 1) / tile_bytes + 1;
                  LaunchOptions options{.block = TeamOf<traced>::threads};
                  const std::size_t most = blocks == Blocks::one
                                               ? ladder::multiprocessors()
                                               : resident_clusters(kernel, options);
                  options.grid = static_cast<unsigned>(all < most ? all : most);
                  launch(kernel, options, stream, aligned, buffer);
                });
              },
          .use = [] { return ladder::kernel_use(kernel, TeamOf<traced>::threads); },
          .hopper = true};
}

std::vector<Kernel> kernels() { return {make(Blocks::one), make(Blocks::resident)}; }

std::vector<Traced> traced() {
  return {{.name = "two_buffers", .roles = role_names(), .kernel = [](const auto& buffer) {
             return make<true>(Blocks::one, buffer);
           }}};
}

const ladder::Instructions machine{.holds = {"UBLKCP.S.G", "UBLKCP.G.S", "SYNCS", "ELECT"},
                                   .lacks = {"LDG", "STG"}};
PENSTOCK_COPY_RUNG("two-buffers",
                   "Warps compute on one buffer while the other is stored and filled.", machine,
                   kernels, traced);

}  // namespace
