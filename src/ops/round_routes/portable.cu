// The GPU's round_routes(), for compute capability 8.0 and later. Five launches: keys of all tokens
// and experts; the cut of every expert; a search for experts that do not get a token that they
// would take; the cuts of those experts again; the results.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "ops/launch.h"
#include "ops/round_routes/work.h"
#include "penstock/base/checked.h"
#include "penstock/host/cuda.h"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/warp.cuh"

namespace ps::rounding {
namespace {

using detail::RoundingWork;

constexpr unsigned lanes = kit::warp_threads;
constexpr unsigned all_lanes = 0xffffffffU;

// A block computes the keys of 32 tokens, 32 experts at a time: a warp reads logits of one token,
// and writes the keys of one expert.
constexpr unsigned key_warps = 8;

template <class Logit>
__global__ void __launch_bounds__(key_warps* lanes) write_keys(const RoundingWork work) {
  __shared__ std::uint32_t tile[lanes][lanes + 1];
  const unsigned warp = kit::warp_index(), lane = kit::lane_index();
  const std::int64_t first_token = std::int64_t{blockIdx.x} * lanes;
  for (int first = 0; first < work.experts; first += lanes) {
    for (unsigned i = warp; i < lanes && first_token + i < work.tokens; i += key_warps) {
      const std::int64_t t = first_token + i;
      const Logit* const row = static_cast<const Logit*>(work.logits) + t * work.logit_row;
      const int e = first + static_cast<int>(lane);
      const std::int64_t best = work.id(t * work.choices);
      std::uint32_t key = 0;
      if (best >= 0 && best < work.experts && e < work.experts) {
        key = weight_key(taken_weight(work.sigmoid, routing::usable(static_cast<float>(row[e])),
                                      routing::usable(static_cast<float>(row[best])),
                                      work.weights[t * work.choices]));
      }
      for (int k = 0; k < work.choices; ++k) {
        const std::int64_t from = t * work.choices + k;
        if (work.id(from) == e) key = chosen_bit | weight_key(work.weights[from]);
      }
      tile[i][lane] = key;
    }
    __syncthreads();
    for (unsigned i = warp; i < lanes; i += key_warps) {
      const int e = first + static_cast<int>(i);
      if (e < work.experts && first_token + lane < work.tokens) {
        work.keys()[e * work.tokens + first_token + lane] = tile[lane][i];
      }
    }
    __syncthreads();
  }
}

constexpr unsigned cut_threads = 512;

// The tokens that an expert may take or drop: values, the best first, in an order that decides
// between equal ones.
struct Candidates {
  const std::uint32_t* keys;
  std::int64_t tokens;
  bool up;

  __device__ std::uint32_t key_at(std::int64_t i) const { return keys[up ? i : tokens - 1 - i]; }
  // 0: no candidate. The sign bit marks candidates, so that a weight of 0 is one.
  __device__ std::uint32_t value(std::int64_t i) const {
    const std::uint32_t key = key_at(i);
    if (up) return (key & chosen_bit) == 0 && key != 0 ? key | chosen_bit : 0;
    return (key & chosen_bit) != 0 ? ~key | chosen_bit : 0;
  }
  __device__ std::uint32_t key_of(std::uint32_t value) const {
    return up ? value & ~chosen_bit : ~value | chosen_bit;
  }
};

// The `wanted`-th largest value, found byte by byte. On return `wanted` counts from the first of
// the candidates that have this value. All threads of the block call it.
__device__ std::uint32_t select(const Candidates& all, unsigned& wanted) {
  __shared__ unsigned histogram[256];
  __shared__ unsigned digit, above;
  std::uint32_t prefix = 0, mask = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (unsigned i = threadIdx.x; i < 256; i += cut_threads) histogram[i] = 0;
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < all.tokens; i += cut_threads) {
      const std::uint32_t value = all.value(i);
      if (value != 0 && (value & mask) == prefix) atomicAdd(&histogram[value >> shift & 255], 1U);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned sum = 0, d = 255;
      while (d > 0 && sum + histogram[d] < wanted) sum += histogram[d--];
      digit = d;
      above = sum;
    }
    __syncthreads();
    prefix |= digit << shift;
    mask |= 255U << shift;
    wanted -= above;
    __syncthreads();
  }
  return prefix;
}

// The index of the `wanted`-th candidate that has this value.
__device__ std::int64_t find(const Candidates& all, std::uint32_t value, unsigned wanted) {
  __shared__ std::int64_t found;
  __shared__ unsigned counts[cut_threads / lanes];
  const unsigned warp = kit::warp_index(), lane = kit::lane_index();
  unsigned before = 0;
  for (std::int64_t first = 0; first < all.tokens; first += cut_threads) {
    const std::int64_t i = first + threadIdx.x;
    const bool equal = i < all.tokens && all.value(i) == value;
    const unsigned peers = __ballot_sync(all_lanes, equal);
    if (lane == 0) counts[warp] = __popc(peers);
    __syncthreads();
    unsigned earlier = before, total = before;
    for (unsigned other = 0; other < cut_threads / lanes; ++other) {
      if (other < warp) earlier += counts[other];
      total += counts[other];
    }
    const unsigned rank = earlier + __popc(peers & ((1U << lane) - 1));
    if (equal && rank + 1 == wanted) found = i;
    __syncthreads();
    before = total;
    if (before >= wanted) break;
  }
  return found;
}

// One block per expert.
__global__ void __launch_bounds__(cut_threads) make_cuts(const RoundingWork work, bool again) {
  __shared__ unsigned counted[2];
  Cut& cut = work.cuts()[blockIdx.x];
  const bool refused = again && cut.refused != 0;
  if (again && !refused) return;
  const std::uint32_t* const keys = work.keys() + blockIdx.x * work.tokens;
  if (threadIdx.x < 2) counted[threadIdx.x] = 0;
  __syncthreads();
  unsigned count = 0, available = 0;
  for (std::int64_t t = threadIdx.x; t < work.tokens; t += cut_threads) {
    const bool chosen = (keys[t] & chosen_bit) != 0;
    count += chosen ? 1 : 0;
    available += !chosen && keys[t] != 0 ? 1 : 0;
  }
  atomicAdd(&counted[0], count);
  atomicAdd(&counted[1], available);
  __syncthreads();

  Cut made{.change = rounded_change(counted[0], counted[1], work.tile, refused),
           .refused = refused ? 1U : 0U};
  if (made.change != 0) {
    const Candidates all{keys, work.tokens, made.change > 0};
    auto wanted = static_cast<unsigned>(abs(made.change));
    const std::uint32_t value = select(all, wanted);
    const std::int64_t index = find(all, value, wanted);
    made.key = all.key_of(value);
    made.token = static_cast<std::uint32_t>(all.up ? index : work.tokens - 1 - index);
  }
  if (threadIdx.x == 0) cut = made;
}

constexpr unsigned token_threads = 128;

__global__ void __launch_bounds__(token_threads) find_refused(const RoundingWork work) {
  const std::int64_t t = std::int64_t{blockIdx.x} * token_threads + threadIdx.x;
  if (t >= work.tokens) return;
  const int extra = work.places - work.choices;
  // The claim of an expert that takes the token; 0 of others.
  const auto claim_of = [&](int e) -> std::uint64_t {
    const std::uint32_t key = work.keys()[e * work.tokens + t];
    return work.cuts()[e].takes(key, static_cast<std::uint32_t>(t)) ? claim(key, e) : 0;
  };
  int takers = 0;
  for (int e = 0; e < work.experts; ++e) takers += claim_of(e) != 0 ? 1 : 0;
  if (takers <= extra) return;
  std::uint64_t last = ~std::uint64_t{0};  // the smallest claim that gets a place
  for (int place = 0; place < extra; ++place) {
    std::uint64_t next = 0;
    for (int e = 0; e < work.experts; ++e) {
      const std::uint64_t other = claim_of(e);
      if (other < last && other > next) next = other;
    }
    last = next;
  }
  for (int e = 0; e < work.experts; ++e) {
    const std::uint64_t own = claim_of(e);
    if (own != 0 && own < last) work.cuts()[e].refused = 1;  // takes() does not read it
  }
}

__global__ void __launch_bounds__(token_threads) write_results(const RoundingWork work) {
  const std::int64_t t = std::int64_t{blockIdx.x} * token_threads + threadIdx.x;
  if (work.changes != nullptr && t < work.experts) work.changes[t] = work.cuts()[t].change;
  if (t >= work.tokens) return;
  const auto index = static_cast<std::uint32_t>(t);
  std::int64_t place = t * work.places;
  const std::int64_t end = place + work.places;
  for (int k = 0; k < work.choices; ++k) {
    const std::int64_t from = t * work.choices + k, e = work.id(from);
    const bool stays = e >= 0 && e < work.experts &&
                       !work.cuts()[e].drops(work.keys()[e * work.tokens + t], index);
    work.write(place++, stays ? e : work.experts, stays ? work.weights[from] : 0.0F);
  }
  for (int e = 0; e < work.experts; ++e) {
    const std::uint32_t key = work.keys()[e * work.tokens + t];
    if (work.cuts()[e].takes(key, index)) work.write(place++, e, weight_of(key));
  }
  while (place < end) work.write(place++, work.experts, 0.0F);
}

}  // namespace
}  // namespace ps::rounding

namespace ps::detail {

void round_routes_portable(const RoundingWork& work, const Stream& stream) {
  using namespace rounding;
  const CurrentGpu current(stream.device());
  const cudaStream_t on = cuda_stream(stream);
  const auto tokens = static_cast<std::size_t>(work.tokens);
  const auto experts = static_cast<unsigned>(work.experts);
  const auto token_blocks = static_cast<unsigned>(
      ceil_div(std::max(tokens, static_cast<std::size_t>(experts)), token_threads));
  auto* const keys = work.logit_type == DType::f16    ? write_keys<__half>
                     : work.logit_type == DType::bf16 ? write_keys<__nv_bfloat16>
                                                      : write_keys<float>;
  if (tokens > 0) {
    const auto blocks = static_cast<unsigned>(ceil_div(tokens, lanes));
    kit::launch(keys, {.grid = blocks, .block = key_warps * lanes}, on, work);
  }
  kit::launch(make_cuts, {.grid = experts, .block = cut_threads}, on, work, false);
  kit::launch(find_refused, {.grid = token_blocks, .block = token_threads}, on, work);
  kit::launch(make_cuts, {.grid = experts, .block = cut_threads}, on, work, true);
  kit::launch(write_results, {.grid = token_blocks, .block = token_threads}, on, work);
}

}  // namespace ps::detail
