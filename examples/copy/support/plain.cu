// The slower path that rungs share, and what they are checked against: an element a thread, plain
// loads and stores, any size, any alignment.
#include "copy/support/f.cuh"
#include "copy/support/work.h"
#include "penstock/kit/launch.cuh"
#include "support/kernel_use.cuh"

namespace ladder::copy {
namespace {

constexpr unsigned threads = 256;

template <Formula formula>
__device__ float value(const Work& work, std::size_t i) {
  float x = work.in[i];
  if constexpr (formula == Formula::stencil) {
    const float above = i >= width ? work.in[i - width] : x;
    const float below = i + width < work.count ? work.in[i + width] : x;
    x = mean(above, x, below);
  }
  x = f(x, work.rounds);
  if constexpr (formula == Formula::row) {
    x = __fmul_rn(x, work.coefficients[i / width / group * width + i % width]);
  }
  return x;
}

template <Formula formula>
__global__ void __launch_bounds__(threads)
    plain(Work work, std::size_t skip_begin, std::size_t skipped) {
  const std::size_t stride = std::size_t{gridDim.x} * threads, left = work.count - skipped;
  for (std::size_t k = std::size_t{blockIdx.x} * threads + threadIdx.x; k < left; k += stride) {
    const std::size_t i = k < skip_begin ? k : k + skipped;
    work.out[i] = value<formula>(work, i);
  }
}

}  // namespace

void launch_plain(Formula formula, const Work& work, std::size_t skip_begin, std::size_t skip_end,
                  cudaStream_t stream) {
  const auto kernel = formula == Formula::plain ? plain<Formula::plain>
                      : formula == Formula::row ? plain<Formula::row>
                                                : plain<Formula::stencil>;
  const std::size_t left = work.count - (skip_end - skip_begin);
  if (left == 0) return;
  const std::size_t most = std::size_t{multiprocessors()} * 8, wanted = (left - 1) / threads + 1;
  ps::kit::launch(kernel,
                  {.grid = static_cast<unsigned>(wanted < most ? wanted : most), .block = threads},
                  stream, work, skip_begin, skip_end - skip_begin);
}

}  // namespace ladder::copy
