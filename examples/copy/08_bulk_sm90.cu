// Bulk copies: one thread has the copy engine move a whole tile, and an mbarrier tells when its
// bytes are there. The other threads only compute, in place, and one of them has the tile stored
// the same way. A slot's life: load, compute, store, and behind the store's last read the next
// load. What ordinary stores wrote, the engine sees only behind a fence.
#include <string>

#include "copy/support/rung.h"
#include "copy/support/tile.cuh"
#include "penstock/base/units.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "support/kernel_use.cuh"
#include "support/phases.cuh"

namespace {

using namespace ladder::copy;
using ladder::Phase;
using namespace ps::kit;

// Configuration. The depth is an argument, so that one kernel serves all of them.
constexpr unsigned threads = 128;
constexpr unsigned most_slots = 8;

struct Shape {
  unsigned tile_bytes;
  unsigned depth;
  bool streaming = true;  // cache hint: each byte is used once
};

template <bool traced = false>
__global__ void __launch_bounds__(threads)
    bulk(Work work, Shape shape, TraceBuffer<traced> buffer) {
  // Shared storage.
  extern __shared__ __align__(128) unsigned char slots[];
  __shared__ Barrier full[most_slots];
  const auto slot_at = [&](unsigned slot) { return slots + slot * shape.tile_bytes; };

  // Setup.
  const bool leads = threadIdx.x == 0;
  if (leads) {
    for (unsigned slot = 0; slot < shape.depth; ++slot) full[slot].init(1);
    fence_barrier_init();
  }
  __syncthreads();

  const std::size_t bytes = work.count * sizeof(float);
  const std::size_t stride = std::size_t{gridDim.x} * shape.tile_bytes;
  const std::size_t first = std::size_t{blockIdx.x} * shape.tile_bytes;
  const auto bytes_at = [&](std::size_t at) {
    return bytes - at < shape.tile_bytes ? static_cast<unsigned>(bytes - at) : shape.tile_bytes;
  };
  ladder::Phases<traced, most_slots> phases(buffer);
  const CacheHint hint = shape.streaming ? evict_first() : evict_normal();
  std::size_t ahead = first;
  const auto load = [&](unsigned slot) {
    if (ahead >= bytes) return;
    phases.ask(slot);
    full[slot].arrive_expect(bytes_at(ahead));
    bulk_load(slot_at(slot), reinterpret_cast<const unsigned char*>(work.in) + ahead,
              bytes_at(ahead), full[slot], hint);
    ahead += stride;
  };
  if (leads) {
    for (unsigned slot = 0; slot < shape.depth; ++slot) load(slot);
  }

  unsigned slot = 0, parity = 0;
  for (std::size_t at = first; at < bytes; at += stride) {
    full[slot].wait(parity);
    phases.landed(slot);
    if (work.rounds > 0) {  // otherwise nothing was written
      f_of_tile(reinterpret_cast<float4*>(slot_at(slot)), bytes_at(at) / sizeof(float4),
                work.rounds, threadIdx.x, threads);
      fence_shared_to_async();
    }
    __syncthreads();
    phases.end(Phase::compute);
    if (leads) {
      bulk_store(reinterpret_cast<unsigned char*>(work.out) + at, slot_at(slot), bytes_at(at),
                 hint);
      bulk_commit();
      if (shape.depth == 1) {
        bulk_wait_read<0>();
        load(slot);
      } else if (at != first) {
        bulk_wait_read<1>();  // the store of the previous tile has read its slot
        load(slot == 0 ? shape.depth - 1 : slot - 1);
      }
      phases.end(Phase::store);
    }
    if (++slot == shape.depth) slot = 0, parity ^= 1;
  }
  if (leads) bulk_wait_read<0>();  // the block must not exit before its shared memory has been read
}

template <bool traced = false>
Kernel make(Shape shape, std::vector<Intensity> at, bool tile_a_block = false,
            TraceBuffer<traced> buffer = {}) {
  constexpr auto kernel = bulk<traced>;
  const std::size_t shared = std::size_t{shape.tile_bytes} * shape.depth;
  std::string label =
      tile_a_block ? ", one tile per block" : ", depth " + std::to_string(shape.depth);
  if (!shape.streaming) label += ", no hints";
  return {
      .label = ps::format_bytes(shape.tile_bytes) + label,
      .launch =
          [=](const Work& work, cudaStream_t stream) {
            launch_aligned(work, 4, stream, [&](const Work& aligned) {
              const std::size_t tiles = (aligned.count * sizeof(float) - 1) / shape.tile_bytes + 1;
              LaunchOptions options{.block = threads, .shared_bytes = shared};
              const std::size_t most = tile_a_block ? tiles : resident_clusters(kernel, options);
              options.grid = static_cast<unsigned>(tiles < most ? tiles : most);
              launch(kernel, options, stream, aligned, shape, buffer);
            });
          },
      .use = [=] { return ladder::kernel_use(kernel, threads, shared); },
      .hopper = true,
      .at = std::move(at)};
}

std::vector<Kernel> kernels() {
  constexpr unsigned KiB = 1024;
  const std::vector<Intensity> all{std::begin(all_intensities), std::end(all_intensities)};
  const std::vector<Intensity> some{Intensity::copy_bound, Intensity::balanced};
  return {make({16 * KiB, 1}, all, true), make({8 * KiB, 4}, all),
          // Depth.
          make({8 * KiB, 1}, some), make({8 * KiB, 2}, some), make({8 * KiB, 3}, some),
          make({8 * KiB, 6}, some), make({8 * KiB, 8}, some),
          // Tile.
          make({4 * KiB, 4}, some), make({16 * KiB, 4}, some), make({32 * KiB, 4}, some)};
}

std::vector<Traced> traced() {
  return {{.name = "bulk", .kernel = [](const auto& buffer) {
             return make<true>({8 * 1024, 4}, {}, false, buffer);
           }}};
}

const ladder::Instructions machine{.holds = {"UBLKCP.S.G", "UBLKCP.G.S", "SYNCS"},
                                   .lacks = {"LDG", "STG", "LDGSTS"}};
PENSTOCK_COPY_RUNG("bulk",
                   "One thread starts the bulk copy of a tile, which the copy engine performs.",
                   machine, kernels, traced);

}  // namespace
