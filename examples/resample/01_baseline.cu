// Where everybody starts: a thread per result. Every thread searches for its target's samples by
// itself, one look at memory after the other, and so do its neighbours of the same row, for the
// same answer; then it moves 2 bytes.
#include "penstock/host/cuda.h"
#include "penstock/kit/launch.cuh"
#include "resample/support/rung.h"
#include "resample/support/sample.cuh"
#include "support/kernel_use.cuh"

namespace {

using namespace ladder::resample;

constexpr unsigned threads = 256;

__global__ void __launch_bounds__(threads) baseline(Work work) {
  const std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= std::size_t{work.all_targets()} * work.columns) return;
  const auto target = static_cast<unsigned>(i / work.columns);
  const auto column = static_cast<unsigned>(i % work.columns);
  const unsigned episode = target / work.targets;

  // The last sample that is not later.
  const Times times = times_of(work, episode);
  const float t = work.at[target];
  int low = -1, high = static_cast<int>(work.samples);
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (times[middle] <= t) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const Sample sample = sample_after(times, episode * work.samples, low, t);

  // Between it and the next one. Nothing is read where nothing is.
  const __nv_bfloat16* const from = work.values + std::size_t{sample.row} * work.columns + column;
  const __nv_bfloat16 x = work.samples > 0 ? from[0] : __nv_bfloat16{};
  const __nv_bfloat16 y = sample.blends() ? from[work.columns] : x;
  work.out[i] = blended(x, y, sample.weight);
}

void run(const Work& work, const ps::Stream& stream) {
  const std::size_t results = std::size_t{work.all_targets()} * work.columns;
  ps::kit::launch(
      baseline,
      {.grid = static_cast<unsigned>((results + threads - 1) / threads), .block = threads},
      ps::cuda_stream(stream), work);
}

std::vector<Kernel> kernels() {
  return {{.label = "a thread per result", .launch = run, .use = [] {
             return ladder::kernel_use(baseline, threads);
           }}};
}

const ladder::Instructions machine{.holds = {"LDG.U16", "STG.U16"},
                                   .lacks = {"SHFL", "VOTE", "LDG.128"}};
PENSTOCK_RESAMPLE_RUNG("baseline", "A thread per result, which searches for its samples alone.",
                       machine, kernels);

}  // namespace
