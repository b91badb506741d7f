// Roles on a ring. Blocks stay and walk through the targets. A finder warp finds the samples of the
// next ones, a lane each, and has their rows brought; meanwhile the movers blend rows that have
// landed. Between them stands the kit's ring: the finder acquires a slot, the copies and the
// finder itself commit it, the movers wait for it and release it. Searching, loading and storing
// then all happen at once, in one block.
// Rows of whole 16 bytes up to 32 KiB; others go through the rung of the warps that search.
#include "penstock/host/cuda.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/roles.cuh"
#include "penstock/kit/scheduler.h"
#include "resample/support/rung.h"
#include "resample/support/sample.cuh"
#include "support/kernel_use.cuh"

namespace {

using namespace ladder::resample;
using namespace ps::kit;

// Configuration. The finder is the loader of the team.
constexpr unsigned depth = 3, mover_warps = 8;
using Team = Roles<1, mover_warps>;
constexpr unsigned slot_bytes = 32 * 1024;  // of rows, where two rows are no more
constexpr unsigned most_row_bytes = 32 * 1024;

// A slot is `group` targets. A row has so many vectors.
template <class Element>
__global__ void __launch_bounds__(Team::threads, 2)
    persistent(Work work, unsigned group, Divisor row_vectors) {
  // Shared storage.
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Ring<Barrier, depth> ring;
  __shared__ NumberOf<Element> weights[depth][warp_threads];
  const unsigned vectors = row_vectors.value();
  const auto rows_of = [&](unsigned slot) {
    return reinterpret_cast<uint4*>(memory) + slot * group * 2 * vectors;
  };

  // Setup.
  if (threadIdx.x == 0) {
    ring.init(1, mover_warps);
    fence_barrier_init();
  }
  __syncthreads();
  const unsigned all = work.all_targets(), step = gridDim.x * group, lane = lane_index();

  // Roles.
  const Role role = Team::role();
  if (role == Role::loader) {
    Producer<Barrier, depth> slots(ring);
    for (unsigned begin = blockIdx.x * group; begin < all; begin += step) {
      const unsigned count = group < all - begin ? group : all - begin;
      const auto sample = lane < count ? find<Element>(work, begin + lane) : Sample<Element>{};
      const unsigned slot = slots.acquire();
      if (lane < count) {
        weights[slot][lane] = sample.weight;
        if (sample.exists()) {
          const unsigned bytes = sample.rows() * vectors * vector_bytes;
          slots.full(slot).expect(bytes);
          bulk_load(rows_of(slot) + lane * 2 * vectors, work.row_of_values<Element>(sample.row),
                    bytes, slots.full(slot));
        }
      }
      __syncwarp();
      if (lane == 0) slots.commit();  // behind all of its lanes' announcements and weights
    }
  } else {
    Consumer<Barrier, depth> slots(ring);
    for (unsigned begin = blockIdx.x * group; begin < all; begin += step) {
      const unsigned count = group < all - begin ? group : all - begin;
      uint4* const to = static_cast<uint4*>(work.out) + std::size_t{begin} * vectors;
      const unsigned slot = slots.wait();
      const uint4* const rows = rows_of(slot);
      for (unsigned i = Team::index(role); i < count * vectors; i += Team::compute_threads) {
        const unsigned target = row_vectors.divide(i), at = i + target * vectors;
        const NumberOf<Element> weight = weights[slot][target];  // NaN where no row came
        const uint4 x = rows[at], y = weight > 0 ? rows[at + vectors] : x;
        __stcs(to + i, blended_vector<Element>(x, y, weight));
      }
      __syncwarp();
      if (lane == 0) slots.release();
    }
  }
}

// Launch: as many blocks as the GPU holds at once.
unsigned group_of(unsigned row_bytes) {
  const unsigned fit = slot_bytes / (2 * row_bytes);
  return fit < 1 ? 1 : fit < warp_threads ? fit : warp_threads;
}

template <class Element>
void run(const Work& work, const ps::Stream& stream) {
  const unsigned vectors = work.columns / vector_elements<Element>;
  const unsigned row_bytes = vectors * vector_bytes;
  if (!why_left(work, most_row_bytes).empty()) return by_warps(work, stream);
  const unsigned group = group_of(row_bytes), slots = (work.all_targets() + group - 1) / group;
  LaunchOptions options{.block = Team::threads,
                        .shared_bytes = std::size_t{depth} * group * 2 * row_bytes};
  const unsigned most = resident_clusters(persistent<Element>, options);
  options.grid = slots < most ? slots : most;
  launch(persistent<Element>, options, ps::cuda_stream(stream), work, group, Divisor(vectors));
}

template <class Element>
ladder::KernelUse use() {
  return ladder::kernel_use(persistent<Element>, Team::threads, depth * slot_bytes);
}

std::vector<Kernel> kernels() {
  return {{.label = "1 search warp, 8 blend warps, depth 3",
           .launch = {run<__nv_bfloat16>, run<float>},
           .use = {use<__nv_bfloat16>, use<float>},
           .hopper = true,
           .most_row_bytes = most_row_bytes}};
}

const ladder::Instructions machine{.holds = {"UBLKCP.S.G", "SYNCS", "LDS.128", "STG.128"},
                                   .lacks = {"LDG.128", "LDGSTS", "UTMALDG"}};
PENSTOCK_RESAMPLE_RUNG("persistent",
                       "One warp searches for the next targets while the others blend rows.",
                       machine, kernels);

}  // namespace
