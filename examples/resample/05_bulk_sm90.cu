// Bulk copies: the copy engine moves whole rows, and an mbarrier tells when their bytes are there.
// A warp takes as many targets as have room. Each lane finds one of them and at once asks for its
// two rows, which lie side by side, in one copy; so the searches run side by side as well. When all
// have landed the lanes blend them together, across the targets, so that narrow rows leave no lane
// idle. Only other warps overlap the wait.
// Rows of whole 16 bytes up to 16 KiB; others go through the rung of the warps that search.
#include "penstock/host/cuda.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/scheduler.h"
#include "penstock/kit/warp.cuh"
#include "resample/support/rung.h"
#include "resample/support/sample.cuh"
#include "support/kernel_use.cuh"

namespace {

using namespace ladder::resample;
using namespace ps::kit;

// Configuration.
constexpr unsigned warps = 4, threads = warps * warp_threads;
constexpr unsigned warp_bytes = 8 * 1024;  // of rows, where two rows are no more
constexpr unsigned most_row_bytes = 16 * 1024;

// A warp takes `group` targets, one a lane. A row has so many vectors.
template <class Element>
__global__ void __launch_bounds__(threads) bulk(Work work, unsigned group, Divisor row_vectors) {
  // Shared storage.
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Barrier landed[warps];
  __shared__ NumberOf<Element> weights[warps][warp_threads];
  const unsigned warp = warp_index(), lane = lane_index(), vectors = row_vectors.value();
  uint4* const rows = reinterpret_cast<uint4*>(memory) + warp * group * 2 * vectors;

  // Setup.
  if (threadIdx.x == 0) {
    for (Barrier& barrier : landed) barrier.init(1);
    fence_barrier_init();
  }
  __syncthreads();
  const unsigned all = work.all_targets(), begin = (blockIdx.x * warps + warp) * group;
  if (begin >= all) return;
  const unsigned count = group < all - begin ? group : all - begin;

  // Copy.
  if (lane < count) {
    const Sample<Element> sample = find<Element>(work, begin + lane);
    weights[warp][lane] = sample.weight;
    if (sample.exists()) {
      const unsigned bytes = sample.rows() * vectors * vector_bytes;
      landed[warp].expect(bytes);
      bulk_load(rows + lane * 2 * vectors, work.row_of_values<Element>(sample.row), bytes,
                landed[warp]);
    }
  }
  __syncwarp();
  if (lane == 0) landed[warp].arrive();  // behind all of its lanes' announcements
  landed[warp].wait(0);

  // Compute. The results of neighbouring targets lie side by side.
  uint4* const to = static_cast<uint4*>(work.out) + std::size_t{begin} * vectors;
  for (unsigned i = lane; i < count * vectors; i += warp_threads) {
    const unsigned target = row_vectors.divide(i), at = i + target * vectors;
    const NumberOf<Element> weight = weights[warp][target];  // NaN where no row came
    const uint4 x = rows[at], y = weight > 0 ? rows[at + vectors] : x;
    __stcs(to + i, blended_vector<Element>(x, y, weight));
  }
}

// Launch.
unsigned group_of(unsigned row_bytes) {
  const unsigned fit = warp_bytes / (2 * row_bytes);
  return fit < 1 ? 1 : fit < warp_threads ? fit : warp_threads;
}

template <class Element>
void run(const Work& work, const ps::Stream& stream) {
  const unsigned vectors = work.columns / vector_elements<Element>;
  const unsigned row_bytes = vectors * vector_bytes;
  if (!why_left(work, most_row_bytes).empty()) return by_warps(work, stream);
  const unsigned group = group_of(row_bytes), tile = warps * group;
  launch(bulk<Element>,
         {.grid = (work.all_targets() + tile - 1) / tile,
          .block = threads,
          .shared_bytes = std::size_t{tile} * 2 * row_bytes},
         ps::cuda_stream(stream), work, group, Divisor(vectors));
}

template <class Element>
ladder::KernelUse use() {
  return ladder::kernel_use(bulk<Element>, threads, warps * warp_bytes);
}

std::vector<Kernel> kernels() {
  return {{.label = "2 rows per lane",
           .launch = {run<__nv_bfloat16>, run<float>},
           .use = {use<__nv_bfloat16>, use<float>},
           .hopper = true,
           .most_row_bytes = most_row_bytes}};
}

const ladder::Instructions machine{.holds = {"UBLKCP.S.G", "SYNCS", "LDS.128", "STG.128"},
                                   .lacks = {"LDG.128", "LDGSTS", "UTMALDG"}};
PENSTOCK_RESAMPLE_RUNG("bulk", "Each lane finds one target and starts a bulk copy of its rows.",
                       machine, kernels);

}  // namespace
