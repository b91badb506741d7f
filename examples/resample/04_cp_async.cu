// Rows ahead: a warp stays for several targets, and while the rows of the next ones travel it
// blends those of the oldest. cuda::pipeline names the steps: acquire a slot (CUDA calls it a
// stage), copy, commit; wait for it, use it, release. The copies are cp.async's: 16 bytes a lane
// into shared memory, past the registers. A lane reads only what it asked for itself, so that the
// pipeline of one thread is enough, and no barrier. The search for a target also falls into the
// time that others' rows take. Rows that are not whole vectors of 16 bytes go through the rung of
// the warps that search.
#include <cuda/pipeline>

#include "penstock/host/cuda.h"
#include "penstock/kit/launch.cuh"
#include "resample/support/rung.h"
#include "resample/support/search.cuh"
#include "support/kernel_use.cuh"

namespace {

using namespace ladder::resample;
using namespace ps::kit;

constexpr unsigned threads = 128, warps = threads / warp_threads;
constexpr auto vector_size = cuda::aligned_size_t<vector_bytes>(vector_bytes);

// A slot is a slice of a target's rows: a vector a lane. A warp takes `run` targets.
template <class Element, unsigned depth>
__global__ void __launch_bounds__(threads) rows_ahead(Work work, unsigned run) {
  // Shared storage: every thread its own column of it.
  __shared__ uint4 earlier[depth][threads], later[depth][threads];
  __shared__ NumberOf<Element> weights[depth][threads];

  // Setup.
  cuda::pipeline<cuda::thread_scope_thread> pipeline = cuda::make_pipeline();
  const unsigned all = work.all_targets(), vectors = work.columns / vector_elements<Element>;
  const unsigned begin = (blockIdx.x * warps + warp_index()) * run;
  const unsigned end = begin + run < all ? begin + run : all;
  const unsigned me = threadIdx.x, lane = lane_index();

  unsigned asked_slot = 0, asked_target = begin, asked_vector = lane;
  Sample<Element> sample{};  // of the target that is asked for
  const auto ask = [&] {
    pipeline.producer_acquire();
    if (asked_target < end) {
      if (asked_vector == lane) sample = find_by_warp<Element>(work, asked_target);
      weights[asked_slot][me] = sample.weight;
      if (asked_vector < vectors && sample.exists()) {
        const uint4* const from = static_cast<const uint4*>(work.values) +
                                  std::size_t{sample.row} * vectors + asked_vector;
        cuda::memcpy_async(&earlier[asked_slot][me], from, vector_size, pipeline);
        if (sample.blends()) {
          cuda::memcpy_async(&later[asked_slot][me], from + vectors, vector_size, pipeline);
        }
      }
      asked_vector += warp_threads;
      if (asked_vector - lane >= vectors) asked_vector = lane, ++asked_target;
    }
    pipeline.producer_commit();  // empty or not: counting commits counts slots
    asked_slot = asked_slot + 1 == depth ? 0 : asked_slot + 1;
  };
  for (unsigned i = 0; i + 1 < depth; ++i) ask();

  unsigned slot = 0;
  for (unsigned target = begin; target < end; ++target) {
    uint4* const to = static_cast<uint4*>(work.out) + std::size_t{target} * vectors;
    for (unsigned slice = 0; slice < vectors; slice += warp_threads) {
      ask();  // into the slot of the turn before
      cuda::pipeline_consumer_wait_prior<depth - 1>(pipeline);
      if (slice + lane < vectors) {
        const NumberOf<Element> weight = weights[slot][me];  // NaN where no row came
        const uint4 x = earlier[slot][me], y = weight > 0 ? later[slot][me] : x;
        __stcs(to + slice + lane, blended_vector<Element>(x, y, weight));
      }
      pipeline.consumer_release();
      slot = slot + 1 == depth ? 0 : slot + 1;
    }
  }
  cuda::pipeline_consumer_wait_prior<0>(pipeline);
}

// Launch: as many warps as the GPU holds at once, each with its share of the targets.
template <class Element, unsigned depth>
void run(const Work& work, const ps::Stream& stream) {
  if (!why_left(work, any_row_bytes).empty()) return by_warps(work, stream);
  const unsigned all = work.all_targets();
  const unsigned most = resident_clusters(rows_ahead<Element, depth>, {.block = threads}) * warps;
  const unsigned share = (all + most - 1) / most, takers = (all + share - 1) / share;
  launch(rows_ahead<Element, depth>, {.grid = (takers + warps - 1) / warps, .block = threads},
         ps::cuda_stream(stream), work, share);
}

template <class Element, unsigned depth>
ladder::KernelUse use() {
  return ladder::kernel_use(rows_ahead<Element, depth>, threads);
}

template <unsigned depth>
Kernel make() {
  return {.label = "depth " + std::to_string(depth),
          .launch = {run<__nv_bfloat16, depth>, run<float, depth>},
          .use = {use<__nv_bfloat16, depth>, use<float, depth>},
          .most_row_bytes = any_row_bytes};
}

std::vector<Kernel> kernels() { return {make<2>(), make<4>()}; }

const ladder::Instructions machine{
    .holds = {"LDGSTS.128", "LDGDEPBAR", "DEPBAR", "VOTE", "STG.128"}, .lacks = {"LDG.128"}};
PENSTOCK_RESAMPLE_RUNG("cp.async",
                       "cuda::pipeline loads rows of the next targets while current ones are used.",
                       machine, kernels);

}  // namespace
