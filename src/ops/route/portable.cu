// The GPU's route(), for compute capability 8.0 and later: one warp per token, with the token's
// experts in registers. Lane l holds experts l, l + 32, l + 64, ..., the order in which score.h
// adds. A warp's loads are then 32 neighbouring elements for any row stride.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "ops/launch.h"
#include "ops/route/score.h"
#include "ops/route/work.h"
#include "penstock/base/checked.h"
#include "penstock/host/cuda.h"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/warp.cuh"

namespace ps::routing {
namespace {

using detail::RouteWork;

constexpr unsigned warps = 4;  // per block
constexpr unsigned threads = warps * kit::warp_threads;
constexpr int blocks_per_multiprocessor = 16;
constexpr unsigned all_lanes = 0xffffffffU;
static_assert(lanes == kit::warp_threads && detail::route_most_groups <= kit::warp_threads);

// Leaves only experts of the best groups.
template <int values>
__device__ void keep_best_groups(const RouteWork& work, unsigned lane,
                                 std::uint32_t (&key)[values]) {
  const unsigned size = static_cast<unsigned>(work.experts) / static_cast<unsigned>(work.groups);
  unsigned group[values];
#pragma unroll
  for (int j = 0; j < values; ++j) group[j] = (lane + lanes * j) / size;

  std::uint32_t own = no_key;  // lane g: of group g
  for (unsigned g = 0; g < static_cast<unsigned>(work.groups); ++g) {
    std::uint32_t best = no_key, second = no_key;
#pragma unroll
    for (int j = 0; j < values; ++j) {
      const std::uint32_t each = group[j] == g ? key[j] : no_key;
      second = max(second, min(best, each));
      best = max(best, each);
    }
    const std::uint32_t first = __reduce_max_sync(all_lanes, best);
    // One lane that has the best expert goes on with its second best.
    if (lane == __ffs(__ballot_sync(all_lanes, best == first)) - 1) best = second;
    const std::uint32_t next = __reduce_max_sync(all_lanes, best);
    if (lane == g) own = group_key(first, next);
  }

  std::uint32_t kept = 0;  // bit g: group g
  for (int i = 0; i < work.top_groups; ++i) {
    const std::uint32_t best = __reduce_max_sync(all_lanes, own);
    if (best == no_key) break;
    const unsigned winner = __ffs(__ballot_sync(all_lanes, own == best)) - 1;
    kept |= 1U << winner;
    if (lane == winner) own = no_key;
  }
#pragma unroll
  for (int j = 0; j < values; ++j) {
    // Past the last expert, where groups may pass 31, keys are no_key already.
    if ((kept >> group[j] % lanes & 1) == 0) key[j] = no_key;
  }
}

// e^(logit - largest) of all experts, in the order that score.h defines.
template <int values>
__device__ float sum_of_exponentials(const float (&logit)[values], float largest) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < values; ++j) sum += exponential(logit[j] - largest);
#pragma unroll
  for (unsigned half = lanes / 2; half > 0; half /= 2) {
    sum += __shfl_xor_sync(all_lanes, sum, half);
  }
  return sum;
}

// Lane k gets choice k, or E. Takes the chosen experts' keys away.
template <int values>
__device__ unsigned choose(const RouteWork& work, unsigned lane, std::uint32_t (&key)[values]) {
  unsigned chosen = work.experts;
  for (unsigned k = 0; k < static_cast<unsigned>(work.choices); ++k) {
    std::uint32_t best = key[0];
    unsigned expert = lane;
#pragma unroll
    for (int j = 1; j < values; ++j) {
      if (key[j] > best) best = key[j], expert = lane + lanes * j;
    }
    const std::uint32_t winning = __reduce_max_sync(all_lanes, best);
    if (winning == no_key) break;
    const unsigned winner = __reduce_min_sync(all_lanes, best == winning ? expert : ~0U);
    if (lane == k) chosen = winner;
#pragma unroll
    for (int j = 0; j < values; ++j) {
      if (winner == lane + lanes * j) key[j] = no_key;
    }
  }
  return chosen;
}

// As choose(), for keys of 16-bit logits: their upper 19 bits tell them apart, so that key and
// expert fit into one word, and the largest word is the choice. Of equal logits the first expert's
// word is the largest.
template <int values>
__device__ unsigned choose_by_word(const RouteWork& work, unsigned lane,
                                   const std::uint32_t (&key)[values]) {
  constexpr unsigned last = detail::route_most_experts - 1;
  static_assert(last == 0x1ff && no_key == 0);
  std::uint32_t word[values];
#pragma unroll
  for (int j = 0; j < values; ++j) {
    word[j] = key[j] == no_key ? no_key : (key[j] >> 13) << 9 | (last - lane - lanes * j);
  }
  std::uint32_t chosen = no_key;
  for (unsigned k = 0; k < static_cast<unsigned>(work.choices); ++k) {
    std::uint32_t best = word[0];
#pragma unroll
    for (int j = 1; j < values; ++j) best = max(best, word[j]);
    const std::uint32_t winning = __reduce_max_sync(all_lanes, best);
    if (winning == no_key) break;
    if (lane == k) chosen = winning;
#pragma unroll
    for (int j = 0; j < values; ++j) {
      if (word[j] == winning) word[j] = no_key;
    }
  }
  return chosen == no_key ? work.experts : last - (chosen & last);
}

// Over the choices, in their order.
__device__ float sum_of_choices(const RouteWork& work, float weight) {
  float sum = 0;
  for (int k = 0; k < work.choices; ++k) sum += __shfl_sync(all_lanes, weight, k);
  return sum;
}

template <int values, class Logit>
__device__ void route_token(const RouteWork& work, unsigned lane, std::int64_t token) {
  const Logit* row = static_cast<const Logit*>(work.logits) + token * work.logit_row;
  const auto experts = static_cast<unsigned>(work.experts);
  float logit[values];
#pragma unroll
  for (int j = 0; j < values; ++j) {
    const unsigned e = lane + lanes * j;
    logit[j] = e < experts ? usable(static_cast<float>(row[e])) : -infinity;
  }
  std::uint32_t key[values];
#pragma unroll
  for (int j = 0; j < values; ++j) {
    const unsigned e = lane + lanes * j;
    const float bias = work.bias != nullptr && e < experts ? work.bias[e] : 0.0F;
    key[j] = compared_key(work.scoring, logit[j], bias);
  }

  const bool softmax = work.scoring != RouteScoring::sigmoid;
  if (work.groups > 1) keep_best_groups(work, lane, key);
  const unsigned chosen =
      sizeof(Logit) == 2 && softmax ? choose_by_word(work, lane, key) : choose(work, lane, key);

  // Each lane computes the weight of its own choice. The logit is in the cache. With softmax the
  // first choice has the largest logit.
  const bool found = chosen < experts;
  const float own = found ? usable(static_cast<float>(row[chosen])) : 0.0F;
  const float largest = __shfl_sync(all_lanes, own, 0);
  float weight = found ? raw_weight(work.scoring, own, largest) : 0.0F;
  float total = 0;
  if (work.scoring == RouteScoring::softmax_topk) total = sum_of_exponentials(logit, largest);
  if (work.scoring == RouteScoring::topk_softmax) total = sum_of_choices(work, weight);
  if (found && softmax) weight = quotient(weight, total);
  if (work.renormalise) {
    const float sum = sum_of_choices(work, weight);
    if (sum > 0) weight = quotient(weight, sum);
  }

  if (lane >= static_cast<unsigned>(work.choices)) return;
  const std::int64_t to = token * work.choices + lane;
  if (work.wide_ids) {
    static_cast<std::int64_t*>(work.ids)[to] = chosen;
  } else {
    static_cast<std::int32_t*>(work.ids)[to] = static_cast<std::int32_t>(chosen);
  }
  work.weights[to] = found ? weight * work.scale : 0.0F;
}

template <int values, class Logit>
__global__ void __launch_bounds__(threads) route_kernel(RouteWork work) {
  kit::let_next_start();
  kit::wait_for_previous();
  const unsigned lane = kit::lane_index();
  const std::int64_t step = std::int64_t{gridDim.x} * warps;
  const std::int64_t first = std::int64_t{blockIdx.x} * warps + kit::warp_index();
  for (std::int64_t token = first; token < work.tokens; token += step) {
    route_token<values, Logit>(work, lane, token);
  }
}

template <class Logit>
auto kernel_for(int experts) {
  if (experts <= 32) return route_kernel<1, Logit>;
  if (experts <= 64) return route_kernel<2, Logit>;
  if (experts <= 128) return route_kernel<4, Logit>;
  if (experts <= 256) return route_kernel<8, Logit>;
  static_assert(detail::route_most_experts == 16 * lanes);
  return route_kernel<16, Logit>;
}

}  // namespace
}  // namespace ps::routing

namespace ps::detail {

void route_portable(const RouteWork& work, const Stream& stream) {
  using namespace routing;
  const auto most = static_cast<std::size_t>(properties_of(stream.device()).multiprocessors *
                                             blocks_per_multiprocessor);
  const auto blocks =
      static_cast<unsigned>(std::min(ceil_div(static_cast<std::size_t>(work.tokens), warps), most));
  auto* const kernel = work.logit_type == DType::f16    ? kernel_for<__half>(work.experts)
                       : work.logit_type == DType::bf16 ? kernel_for<__nv_bfloat16>(work.experts)
                                                        : kernel_for<float>(work.experts);
  const CurrentGpu current(stream.device());
  kit::launch(kernel, {.grid = blocks, .block = threads, .overlaps_previous = true},
              cuda_stream(stream), work);
}

}  // namespace ps::detail
