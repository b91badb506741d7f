#include "copy/support/checks.h"

#include <algorithm>
#include <vector>

#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "penstock/kit/launch.cuh"
#include "penstock/ops/iterate.h"
#include "support/interleaved.h"
#include "support/kernel_use.cuh"

namespace ladder::copy {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned blocks_per_multiprocessor = 8;

__global__ void __launch_bounds__(threads) random(float* data, std::size_t count, unsigned seed) {
  const std::size_t stride = std::size_t{gridDim.x} * threads;
  for (std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x; i < count; i += stride) {
    // Mixes the bits of i: xor with shifted copies, and odd multipliers.
    std::uint64_t bits = i + (std::uint64_t{seed} << 40);
    bits = (bits ^ bits >> 31) * 0x9E3779B97F4A7C15U;
    bits = (bits ^ bits >> 29) * 0xD6E8FEB86659FD93U;
    data[i] = static_cast<float>(bits >> 40) * 0x1p-22F - 2.0F;
  }
}

struct Found {
  unsigned long long count, first;
};

__global__ void __launch_bounds__(threads)
    compare(const float* a, const float* b, std::size_t count, Found* found) {
  const std::size_t stride = std::size_t{gridDim.x} * threads;
  for (std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x; i < count; i += stride) {
    if (__float_as_uint(a[i]) == __float_as_uint(b[i])) continue;
    atomicAdd(&found->count, 1);
    atomicMin(&found->first, i);
  }
}

// 512 multiply-adds to a turn of the loop. The result leaves only if it is something impossible.
template <int chains>
__global__ void __launch_bounds__(threads) multiply_adds(float* out, int turns, float impossible) {
  float x[chains];
#pragma unroll
  for (int c = 0; c < chains; ++c) x[c] = static_cast<float>(threadIdx.x + c);
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn) {
#pragma unroll
    for (int i = 0; i < 512; ++i) {
      x[i % chains] = __fmaf_rn(ps::iterate_scale, x[i % chains], ps::iterate_shift);
    }
  }
#pragma unroll
  for (int c = 0; c < chains; ++c) {
    if (x[c] == impossible) out[threadIdx.x] = x[c];
  }
}

unsigned blocks_for(std::size_t count) {
  return static_cast<unsigned>(
      std::clamp<std::size_t>(count / threads, 1, multiprocessors() * blocks_per_multiprocessor));
}

}  // namespace

void fill_random(float* data, std::size_t count, unsigned seed, cudaStream_t stream) {
  ps::kit::launch(random, {.grid = blocks_for(count), .block = threads}, stream, data, count, seed);
}

Differences differences(const float* a, const float* b, std::size_t count,
                        const ps::Stream& stream) {
  const ps::Device device = stream.device();
  const ps::DeviceBuffer there(device, sizeof(Found));
  const ps::PinnedBuffer here(device, sizeof(Found));
  auto* const found = here.view().as<Found>();
  *found = {0, ~0ULL};
  ps::copy(there.view(), here.view(), stream);
  ps::kit::launch(compare, {.grid = blocks_for(count), .block = threads}, ps::cuda_stream(stream),
                  a, b, count, there.view().as<Found>());
  ps::copy(here.view(), there.view(), stream);
  stream.synchronize();
  return {.count = found->count, .first = found->first};
}

double multiply_adds_per_second(const ps::Stream& stream, int turns) {
  constexpr int loops = 256;
  constexpr float impossible = -1e30F;
  const ps::DeviceBuffer out(stream.device(), threads * sizeof(float));
  const unsigned blocks = multiprocessors() * blocks_per_multiprocessor;
  const auto run = [&](auto kernel) -> Enqueue {
    return [&, kernel](std::size_t) {
      ps::kit::launch(kernel, {.grid = blocks, .block = threads}, ps::cuda_stream(stream),
                      out.view().as<float>(), loops, impossible);
    };
  };
  const std::vector<double> seconds = interleaved_medians(
      stream, {run(multiply_adds<4>), run(multiply_adds<8>), run(multiply_adds<16>)},
      {.turns = turns, .warm_up = 2});
  const double operations = 512.0 * loops * threads * blocks;
  return operations / *std::min_element(seconds.begin(), seconds.end());
}

}  // namespace ladder::copy
