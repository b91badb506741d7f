// The same with 16 bytes a load and a store: a row of 512 bytes is one access of the warp instead
// of eight, and each lane has both of its rows under way at once. Narrower rows leave lanes idle.
// Rows that are not whole vectors of 16 bytes go element by element, through the rung before.
#include "penstock/host/cuda.h"
#include "penstock/kit/launch.cuh"
#include "resample/support/rung.h"
#include "resample/support/search.cuh"
#include "support/kernel_use.cuh"

namespace {

using namespace ladder::resample;
using namespace ps::kit;

constexpr unsigned threads = 256, warps = threads / warp_threads;

template <class Element>
__global__ void __launch_bounds__(threads) vectorised(Work work) {
  const unsigned target = blockIdx.x * warps + warp_index();
  if (target >= work.all_targets()) return;
  const Sample<Element> sample = find_by_warp<Element>(work, target);

  const unsigned vectors = work.columns / vector_elements<Element>;
  const uint4* const from =
      static_cast<const uint4*>(work.values) + std::size_t{sample.row} * vectors;
  uint4* const to = static_cast<uint4*>(work.out) + std::size_t{target} * vectors;
#pragma unroll 2
  for (unsigned v = lane_index(); v < vectors; v += warp_threads) {
    const uint4 x = sample.exists() ? from[v] : uint4{};
    const uint4 y = sample.blends() ? from[vectors + v] : x;
    __stcs(to + v, blended_vector<Element>(x, y, sample.weight));  // nobody reads it here
  }
}

template <class Element>
void run(const Work& work, const ps::Stream& stream) {
  if (!why_left(work, any_row_bytes).empty()) return by_warps(work, stream);
  launch(vectorised<Element>, {.grid = (work.all_targets() + warps - 1) / warps, .block = threads},
         ps::cuda_stream(stream), work);
}

template <class Element>
ladder::KernelUse use() {
  return ladder::kernel_use(vectorised<Element>, threads);
}

std::vector<Kernel> kernels() {
  return {{.label = "16 bytes per lane",
           .launch = {run<__nv_bfloat16>, run<float>},
           .use = {use<__nv_bfloat16>, use<float>},
           .most_row_bytes = any_row_bytes}};
}

const ladder::Instructions machine{.holds = {"VOTE", "SHFL", "LDG.128", "STG.128"},
                                   .lacks = {"LDG.U16", "STS", "LDGSTS"}};
PENSTOCK_RESAMPLE_RUNG("vectorised",
                       "Each lane loads and stores 16 bytes: a warp reads a row in one access.",
                       machine, kernels);

}  // namespace
