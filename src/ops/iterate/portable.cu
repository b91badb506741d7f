// The GPU's iterate, for compute capability 8.0 and later. Every block takes an equal range of the
// data, so that time grows with the bytes and not with waves. A thread takes four elements at a
// time where memory is the limit, and one where arithmetic is: the smaller the last, ragged step of
// a range, the less of the GPU idles in it.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "ops/iterate/iterate.h"
#include "ops/launch.h"
#include "penstock/base/checked.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/iterate.h"

namespace ps::detail {
namespace {

constexpr int threads = 256;
constexpr int arithmetic_bound_rounds = 64;
constexpr int blocks_per_multiprocessor = 8;

// Each element is read once and written once: the hints keep it from pushing others out of L2.
__device__ void load(const float4* from, float* to) {
  const float4 v = __ldcs(from);
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
__device__ void load(const float* from, float* to) { to[0] = __ldcs(from); }
__device__ void store(float4* to, const float* from) {
  __stcs(to, make_float4(from[0], from[1], from[2], from[3]));
}
__device__ void store(float* to, const float* from) { __stcs(to, from[0]); }

template <int count>
__device__ void advance(float (&x)[count], int rounds) {
#pragma unroll 16
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int e = 0; e < count; ++e) x[e] = __fmaf_rn(iterate_scale, x[e], iterate_shift);
  }
}

// `head` elements come before the first whole Vector; `ragged` before it and after the last one.
struct Cut {
  const float* in;
  float* out;
  std::size_t vectors;
  unsigned head, ragged;
};

template <class Vector>
__global__ void __launch_bounds__(threads) iterate_kernel(Cut cut, int rounds) {
  constexpr int width = sizeof(Vector) / sizeof(float);
  const std::size_t begin = cut.vectors * blockIdx.x / gridDim.x;
  const std::size_t end = cut.vectors * (blockIdx.x + 1) / gridDim.x;
  // The last, ragged tile of a range keeps only some warps busy. Blocks that share a multiprocessor
  // let different warps do it, since a warp's number decides which scheduler runs it.
  const unsigned turn = blockIdx.x * blocks_per_multiprocessor / gridDim.x * 32;
  const unsigned thread = (threadIdx.x + turn) % threads;
  const auto* in = reinterpret_cast<const Vector*>(cut.in + cut.head);
  auto* out = reinterpret_cast<Vector*>(cut.out + cut.head);

  for (std::size_t index = begin + thread; index < end; index += threads) {
    float x[width];
    load(in + index, x);
    advance(x, rounds);
    store(out + index, x);
  }

  if (blockIdx.x == 0 && threadIdx.x < cut.ragged) {
    const std::size_t skip = threadIdx.x < cut.head ? 0 : cut.vectors * width;
    float x[1] = {cut.in[skip + threadIdx.x]};
    advance(x, rounds);
    cut.out[skip + threadIdx.x] = x[0];
  }
}

// Vectors start at a 16-byte boundary; that takes in and out being equally far from one.
Cut cut_at_boundaries(const IterateWork& work, bool& vectorised) {
  constexpr std::uintptr_t bytes = sizeof(float4);
  const auto in = reinterpret_cast<std::uintptr_t>(work.in) % bytes;
  const auto out = reinterpret_cast<std::uintptr_t>(work.out) % bytes;
  vectorised = in == out && work.rounds < arithmetic_bound_rounds;
  if (!vectorised) return {work.in, work.out, work.elements, 0, 0};
  const std::size_t head = std::min((bytes - in) % bytes / sizeof(float), work.elements);
  const std::size_t vectors = (work.elements - head) / 4;
  return {work.in, work.out, vectors, static_cast<unsigned>(head),
          static_cast<unsigned>(work.elements - vectors * 4)};
}

}  // namespace

void iterate_portable(const IterateWork& work, const Stream& stream) {
  bool vectorised = false;
  Cut cut = cut_at_boundaries(work, vectorised);
  int rounds = work.rounds;
  const int resident = properties_of(stream.device()).multiprocessors * blocks_per_multiprocessor;
  const int most = work.blocks > 0 ? work.blocks : resident;
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::size_t>(ceil_div(cut.vectors, threads), 1, static_cast<std::size_t>(most)));

  void* arguments[] = {&cut, &rounds};
  const void* kernel = vectorised ? reinterpret_cast<const void*>(iterate_kernel<float4>)
                                  : reinterpret_cast<const void*>(iterate_kernel<float>);
  launch_on(stream, "launching iterate", [&] {
    return cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), arguments, 0, cuda_stream(stream));
  });
}

}  // namespace ps::detail
