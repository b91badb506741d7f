// Adds up the experts' results of every token, in f32 and in the order of the choices; that of the
// shared expert comes last.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "ops/moe/gpu.h"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/scheduler.h"

namespace ps::detail {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned together = 4;  // rows that a thread has in flight

// A thread has 16 bytes of a row, as pairs of elements.
template <class Pair>
constexpr unsigned pairs_of = 16 / sizeof(Pair);

__device__ float2 floats(float2 pair) { return pair; }
__device__ float2 floats(__nv_bfloat162 pair) { return __bfloat1622float2(pair); }
__device__ float2 floats(__half2 pair) { return __half22float2(pair); }
__device__ float2 rounded(float2 pair, float2) { return pair; }
__device__ __nv_bfloat162 rounded(float2 pair, __nv_bfloat162) {
  return __floats2bfloat162_rn(pair.x, pair.y);
}
__device__ __half2 rounded(float2 pair, __half2) { return __floats2half2_rn(pair.x, pair.y); }

struct Sum {
  const uint4* y;
  const int* place;
  const void* weights;
  uint4* out;
  unsigned total;            // 16-byte chunks of all tokens
  unsigned chunks;           // of a token
  std::uint64_t out_chunks;  // from one row of out to the next
  unsigned choices;
  const uint4* shared;  // the shared expert's results, by token; null: none
  const void* shared_weights;
  DType shared_weight_type;
};

// total += factor * values
template <class Pair>
__device__ void add(float2 (&total)[pairs_of<Pair>], float factor, const uint4& values) {
  const auto& pairs = reinterpret_cast<const Pair(&)[pairs_of<Pair>]>(values);
#pragma unroll
  for (unsigned i = 0; i < pairs_of<Pair>; ++i) {
    const float2 value = floats(pairs[i]);
    total[i].x = fmaf(factor, value.x, total[i].x);
    total[i].y = fmaf(factor, value.y, total[i].y);
  }
}

__device__ float shared_weight(const Sum& sum, unsigned token) {
  if (sum.shared_weights == nullptr) return 1.F;
  switch (sum.shared_weight_type) {
    case DType::bf16:
      return static_cast<float>(static_cast<const __nv_bfloat16*>(sum.shared_weights)[token]);
    case DType::f16:
      return static_cast<float>(static_cast<const __half*>(sum.shared_weights)[token]);
    default:
      return static_cast<const float*>(sum.shared_weights)[token];
  }
}

// Four loads per thread fit into the registers of five blocks per multiprocessor without spills.
template <class Pair, class Weight>
__global__ void __launch_bounds__(threads, 5) add_up(const Sum sum) {
  kit::wait_for_previous();
  kit::let_next_start();
  const unsigned index = blockIdx.x * threads + threadIdx.x;
  if (index >= sum.total) return;
  const unsigned token = index / sum.chunks;
  const unsigned column = index - token * sum.chunks;
  const unsigned pair = token * sum.choices;
  const auto* const weights = static_cast<const Weight*>(sum.weights);
  float2 total[pairs_of<Pair>] = {};
  for (unsigned first = 0; first < sum.choices; first += together) {
    int row[together];
    Weight weight[together];
    uint4 values[together];
#pragma unroll
    for (unsigned k = 0; k < together; ++k) {
      // Ordinary loads: the kernel may have started before these were written.
      const unsigned at = pair + min(first + k, sum.choices - 1);
      row[k] = sum.place[at];
      weight[k] = weights[at];
    }
#pragma unroll
    for (unsigned k = 0; k < together; ++k) {
      if (first + k >= sum.choices) row[k] = -1;
    }
#pragma unroll
    for (unsigned k = 0; k < together; ++k) {
      if (row[k] >= 0) values[k] = __ldcs(sum.y + std::uint64_t(row[k]) * sum.chunks + column);
    }
#pragma unroll
    for (unsigned k = 0; k < together; ++k) {
      if (row[k] >= 0) add<Pair>(total, static_cast<float>(weight[k]), values[k]);
    }
  }
  if (sum.shared != nullptr) {
    add<Pair>(total, shared_weight(sum, token), __ldcs(sum.shared + index));
  }
  uint4 result;
  auto& pairs = reinterpret_cast<Pair(&)[pairs_of<Pair>]>(result);
#pragma unroll
  for (unsigned i = 0; i < pairs_of<Pair>; ++i) pairs[i] = rounded(total[i], Pair());
  __stcs(sum.out + std::uint64_t{token} * sum.out_chunks + column, result);
}

template <class Pair>
void run(const MoeWork& work, cudaStream_t stream) {
  const MoeSpace space(work);
  constexpr std::int64_t width = 2 * pairs_of<Pair>;
  const auto chunks = static_cast<unsigned>(work.hidden / width);
  const bool shared = work.shared_width > 0;
  const Sum sum{
      .y = static_cast<const uint4*>(space.y),
      .place = space.place,
      .weights = work.weights,
      .out = static_cast<uint4*>(work.out),
      .total = static_cast<unsigned>(work.tokens * chunks),
      .chunks = chunks,
      .out_chunks = static_cast<std::uint64_t>(work.out_row) / width,
      .choices = static_cast<unsigned>(work.choices),
      .shared = shared ? static_cast<const uint4*>(MoeSpace(work.shared_work()).y) : nullptr,
      .shared_weights = work.shared_weights,
      .shared_weight_type = work.shared_weight_type};
  const kit::LaunchOptions options{
      .grid = (sum.total - 1) / threads + 1, .block = threads, .overlaps_previous = true};
  auto* const kernel = work.weight_type == DType::f32    ? add_up<Pair, float>
                       : work.weight_type == DType::bf16 ? add_up<Pair, __nv_bfloat16>
                                                         : add_up<Pair, __half>;
  kit::launch(kernel, options, stream, sum);
}

}  // namespace

void moe_add_up(const MoeWork& work, cudaStream_t stream) {
  if (work.type == DType::f32) {
    run<float2>(work, stream);
  } else if (work.type == DType::f16) {
    run<__half2>(work, stream);
  } else {
    run<__nv_bfloat162>(work, stream);
  }
}

}  // namespace ps::detail
