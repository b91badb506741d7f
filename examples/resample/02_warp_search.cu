// A warp per target. Its lanes search together: 32 places at once, a ballot, and a thirty-second
// part is left, so that 500 times take two looks at memory instead of nine. One lane computes the
// weight, a division in double precision, and tells the others by a shuffle. Then they move the
// row, element by element. The search is support/search.cuh; rungs that cannot do some size leave
// it to this one.
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
__global__ void __launch_bounds__(threads) warp_search(Work work) {
  const unsigned target = blockIdx.x * warps + warp_index();
  if (target >= work.all_targets()) return;
  const Sample<Element> sample = find_by_warp<Element>(work, target);

  const Element* const from = work.row_of_values<Element>(sample.row);
  Element* const to = work.row_of_results<Element>(target);
  for (unsigned column = lane_index(); column < work.columns; column += warp_threads) {
    const Element x = sample.exists() ? from[column] : Element{};
    const Element y = sample.blends() ? from[work.columns + column] : x;
    to[column] = blended(x, y, sample.weight);
  }
}

template <class Element>
void run(const Work& work, const ps::Stream& stream) {
  launch(warp_search<Element>, {.grid = (work.all_targets() + warps - 1) / warps, .block = threads},
         ps::cuda_stream(stream), work);
}

template <class Element>
ladder::KernelUse use() {
  return ladder::kernel_use(warp_search<Element>, threads);
}

constexpr decltype(Kernel::launch) launches{run<__nv_bfloat16>, run<float>};

std::vector<Kernel> kernels() {
  return {{.label = "one warp per target",
           .launch = launches,
           .use = {use<__nv_bfloat16>, use<float>}}};
}

const ladder::Instructions machine{.holds = {"VOTE", "SHFL", "LDG.U16", "STG.U16"},
                                   .lacks = {"LDG.128", "STG.128"}};
PENSTOCK_RESAMPLE_RUNG("warp-search",
                       "One warp per target time, whose 32 lanes search and copy together.",
                       machine, kernels);

}  // namespace

void ladder::resample::by_warps(const Work& work, const ps::Stream& stream) {
  launches.of(work.type)(work, stream);
}
