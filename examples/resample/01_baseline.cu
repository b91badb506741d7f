// Where everybody starts: a thread per result. Every thread searches for its target's samples by
// itself, one look at memory after the other, and so do its neighbours of the same row, for the
// same answer; then it moves one element.
#include "penstock/host/cuda.h"
#include "penstock/kit/launch.cuh"
#include "resample/support/rung.h"
#include "resample/support/sample.cuh"
#include "support/kernel_use.cuh"

namespace {

using namespace ladder::resample;

constexpr unsigned threads = 256;

template <class Element>
__global__ void __launch_bounds__(threads) baseline(Work work) {
  const std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= std::size_t{work.all_targets()} * work.columns) return;
  const auto target = static_cast<unsigned>(i / work.columns);
  const auto column = static_cast<unsigned>(i % work.columns);
  const unsigned episode = target / work.targets;

  // The last sample that is not later.
  const Times times = times_of(work, episode);
  const float t = work.at[target];
  int low = -1, high = static_cast<int>(times.count);
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (times[middle] <= t) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const Sample<Element> sample = sample_after<Element>(times, episode * work.samples, low, t);

  // Between it and the next one. Nothing is read where nothing is.
  const Element* const from = work.row_of_values<Element>(sample.row) + column;
  const Element x = sample.exists() ? from[0] : Element{};
  const Element y = sample.blends() ? from[work.columns] : x;
  work.row_of_results<Element>(target)[column] = blended(x, y, sample.weight);
}

template <class Element>
void run(const Work& work, const ps::Stream& stream) {
  const std::size_t results = std::size_t{work.all_targets()} * work.columns;
  ps::kit::launch(
      baseline<Element>,
      {.grid = static_cast<unsigned>((results + threads - 1) / threads), .block = threads},
      ps::cuda_stream(stream), work);
}

template <class Element>
ladder::KernelUse use() {
  return ladder::kernel_use(baseline<Element>, threads);
}

std::vector<Kernel> kernels() {
  return {{.label = "one thread per result",
           .launch = {run<__nv_bfloat16>, run<float>},
           .use = {use<__nv_bfloat16>, use<float>}}};
}

const ladder::Instructions machine{.holds = {"LDG.U16", "STG.U16"},
                                   .lacks = {"SHFL", "VOTE", "LDG.128"}};
PENSTOCK_RESAMPLE_RUNG("baseline", "One thread per result, which searches for its samples alone.",
                       machine, kernels);

}  // namespace
