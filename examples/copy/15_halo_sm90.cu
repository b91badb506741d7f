// A stencil needs its neighbours: every tile wants the row above it and the row below it, which are
// other blocks' rows. A cluster's blocks take tiles one below the other and read those rows
// straight out of each other's shared memory; only the cluster's outer edges are loaded twice. A
// barrier of the cluster says that all tiles have landed, and that nobody reads the tiles before
// them any more. It has two halves: a block arrives when its next tile has landed, and stores its
// results before it waits. Beside it, the same tiles each loaded with its own edges.
#include "copy/support/f.cuh"
#include "copy/support/rung.h"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/cluster.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "support/kernel_use.cuh"
#include "support/phases.cuh"

namespace {

using namespace ladder::copy;
using ladder::Phase;
using namespace ps::kit;

// Configuration: a thread takes a column of vectors through the rows of a tile.
constexpr unsigned vectors = width / 4, threads = vectors;
constexpr unsigned rows = 2, depth = 3;
constexpr unsigned row_bytes = width * sizeof(float);

struct Slot {  // the same layout as in memory, so that one copy loads all of it
  float4 above[vectors];
  float4 tile[rows][vectors];
  float4 below[vectors];
};

__device__ float4 mean(const float4& above, const float4& x, const float4& below) {
  using ladder::copy::mean;
  return make_float4(mean(above.x, x.x, below.x), mean(above.y, x.y, below.y),
                     mean(above.z, x.z, below.z), mean(above.w, x.w, below.w));
}

// `tiles` are done here, of a matrix of `matrix_rows` whole rows.
template <unsigned cluster, bool traced = false>
__global__ void __launch_bounds__(threads)
    stencil(Work work, unsigned tiles, std::size_t matrix_rows, TraceBuffer<traced> buffer) {
  // Shared storage.
  extern __shared__ __align__(128) unsigned char memory[];
  auto* const slots = reinterpret_cast<Slot*>(memory);
  __shared__ Barrier full[depth];

  // Setup.
  const bool leads = threadIdx.x == 0;
  if (leads) {
    for (unsigned slot = 0; slot < depth; ++slot) full[slot].init(1);
    fence_barrier_init();
  }
  __syncthreads();

  const unsigned rank = cluster > 1 ? cluster_rank() : 0;
  const auto has_above = [&](unsigned tile) { return tile > 0; };
  const auto has_below = [&](unsigned tile) {
    return (std::size_t{tile} + 1) * rows < matrix_rows;
  };
  // Whether the neighbouring tile is in the cluster.
  const auto above_is_near = [&](unsigned tile) { return rank > 0 && has_above(tile); };
  const auto below_is_near = [&](unsigned tile) { return rank + 1 < cluster && tile + 1 < tiles; };

  ladder::Phases<traced, depth> phases(buffer);
  unsigned ahead = blockIdx.x;
  const auto load = [&](unsigned s) {
    if (ahead < tiles) {
      const unsigned above = has_above(ahead) && !above_is_near(ahead);
      const unsigned below = has_below(ahead) && !below_is_near(ahead);
      const unsigned bytes = (rows + above + below) * row_bytes;
      phases.ask(s);
      full[s].arrive_expect(bytes);
      bulk_load(above ? slots[s].above : slots[s].tile[0],
                work.in + (std::size_t{ahead} * rows - above) * width, bytes, full[s]);
    }
    ahead += gridDim.x;
  };
  if (leads) {
    for (unsigned s = 0; s + 1 < depth; ++s) load(s);
  }

  // A cluster's blocks turn together, also those that have no tile left.
  unsigned s = 0, parity = 0;
  const auto arrive_when_landed = [&](unsigned tile) {
    if (tile < tiles) {
      full[s].wait(parity);
      phases.landed(s);
    }
    __syncwarp();
    if constexpr (cluster > 1) cluster_arrive();
  };
  arrive_when_landed(blockIdx.x);
  for (unsigned tile = blockIdx.x; tile - rank < tiles; tile += gridDim.x) {
    if constexpr (cluster > 1) {
      cluster_wait();
    } else {
      __syncthreads();
    }
    phases.end(Phase::meet);
    if (leads) load(s == 0 ? depth - 1 : s - 1);  // the slot that the previous iteration read

    float4 y[rows];
    if (tile < tiles) {
      const Slot& slot = slots[s];
      const float4* above = has_above(tile) ? slot.above : slot.tile[0];
      const float4* below = has_below(tile) ? slot.below : slot.tile[rows - 1];
      if (above_is_near(tile)) above = in_block(slot.tile[rows - 1], rank - 1);
      if (below_is_near(tile)) below = in_block(slot.tile[0], rank + 1);

      float4 x[rows + 2];
      x[0] = above[threadIdx.x];
#pragma unroll
      for (unsigned r = 0; r < rows; ++r) x[r + 1] = slot.tile[r][threadIdx.x];
      x[rows + 1] = below[threadIdx.x];
#pragma unroll
      for (unsigned r = 0; r < rows; ++r) y[r] = mean(x[r], x[r + 1], x[r + 2]);
      f(y, work.rounds);
      phases.end(Phase::compute, y);
    }
    if (++s == depth) s = 0, parity ^= 1;
    arrive_when_landed(tile + gridDim.x);
    if (tile < tiles) {
      auto* const out = reinterpret_cast<float4*>(work.out + std::size_t{tile} * rows * width);
#pragma unroll
      for (unsigned r = 0; r < rows; ++r) __stcs(out + r * vectors + threadIdx.x, y[r]);
      phases.end(Phase::store);
    }
  }
  if constexpr (cluster > 1) cluster_wait();  // the others may still read here
}

constexpr std::size_t shared_bytes = depth * sizeof(Slot);

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

// Tiles that have a whole row below them, or none at all.
unsigned tiles_of(const Work& work) {
  if (!is_aligned(work.in) || !is_aligned(work.out)) return 0;
  const std::size_t whole = work.count / width;
  const bool ragged = whole % rows == 0 && work.count % width != 0;
  const std::size_t tiles = whole / rows;
  return static_cast<unsigned>(ragged && tiles > 0 ? tiles - 1 : tiles);
}

template <unsigned cluster, bool traced = false>
Kernel make(std::string label, TraceBuffer<traced> buffer = {}) {
  constexpr auto kernel = stencil<cluster, traced>;
  return {.label = std::move(label),
          .launch =
              [=](const Work& work, cudaStream_t stream) {
                const unsigned tiles = tiles_of(work);
                if (tiles > 0) {
                  LaunchOptions options{
                      .block = threads, .shared_bytes = shared_bytes, .cluster = cluster};
                  const unsigned most = resident_clusters(kernel, options);
                  const unsigned wanted = (tiles + cluster - 1) / cluster;
                  options.grid = (wanted < most ? wanted : most) * cluster;
                  launch(kernel, options, stream, work, tiles, work.count / width, buffer);
                }
                launch_plain(Formula::stencil, work, 0, std::size_t{tiles} * rows * width, stream);
              },
          .use = [] { return ladder::kernel_use(kernel, threads, shared_bytes); },
          .formula = Formula::stencil,
          .hopper = true};
}

std::vector<Kernel> kernels() {
  return {make<1>("each block loads its edges"), make<4>("edges from 4 blocks"),
          make<8>("edges from 8 blocks")};
}

std::vector<Traced> traced() {
  return {{.name = "halo",
           .roles = {"load", "compute", "store", "meet"},
           .kernel = [](const auto& buffer) { return make<4, true>("traced", buffer); }}};
}

const ladder::Instructions machine{.holds = {"UBLKCP.S.G", "LD.128", "UCGABAR_ARV", "UCGABAR_WAIT"},
                                   .lacks = {"LDG", "LDGSTS"}};
PENSTOCK_COPY_RUNG("halo", "A stencil reads its edges from the shared memory of other blocks.",
                   machine, kernels, traced);

}  // namespace
