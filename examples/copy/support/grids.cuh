// How the rungs of plain kernels launch: over the elements, or over the vectors of 16 bytes.
#pragma once

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "copy/support/work.h"
#include "penstock/kit/launch.cuh"
#include "support/kernel_use.cuh"

namespace ladder::copy {

enum class Grid {
  covering,  // a block for every piece of the work
  resident,  // as many blocks as the GPU holds at once; each takes one piece after the other
};

struct GridOptions {
  Grid grid = Grid::covering;
  unsigned threads = 0;  // of a block
  unsigned piece = 0;    // elements or vectors that a block takes at a time
};

template <class... Parameter>
unsigned blocks_for(void (*kernel)(Parameter...), const GridOptions& options, std::size_t count) {
  const std::size_t wanted = (count - 1) / options.piece + 1;
  if (options.grid == Grid::covering) return static_cast<unsigned>(wanted);
  const std::size_t most = ps::kit::resident_clusters(kernel, {.block = options.threads});
  return static_cast<unsigned>(wanted < most ? wanted : most);
}

// Any size, any alignment. `more` is what the kernel takes behind the work: a buffer for its trace.
template <class... More>
Kernel over_elements(std::string label, void (*kernel)(Work, More...), GridOptions options,
                     std::tuple<More...> more = {}) {
  return {.label = std::move(label),
          .launch =
              [=](const Work& work, cudaStream_t stream) {
                const ps::kit::LaunchOptions launched{
                    .grid = blocks_for(kernel, options, work.count), .block = options.threads};
                std::apply(
                    [&](const More&... last) {
                      ps::kit::launch(kernel, launched, stream, work, last...);
                    },
                    more);
              },
          .use = [=] { return kernel_use(kernel, options.threads); }};
}

// What is not whole vectors goes the slower way.
template <class... More>
using VectorKernel = void (*)(const float4* in, float4* out, std::size_t vectors, int rounds,
                              More...);

template <class... More>
Kernel over_vectors(std::string label, VectorKernel<More...> kernel, GridOptions options,
                    std::vector<Intensity> at = {std::begin(all_intensities),
                                                 std::end(all_intensities)},
                    std::tuple<More...> more = {}) {
  return {.label = std::move(label),
          .launch =
              [=](const Work& work, cudaStream_t stream) {
                launch_aligned(work, 4, stream, [&](const Work& aligned) {
                  const std::size_t vectors = aligned.count / 4;
                  const ps::kit::LaunchOptions launched{
                      .grid = blocks_for(kernel, options, vectors), .block = options.threads};
                  std::apply(
                      [&](const More&... last) {
                        ps::kit::launch(kernel, launched, stream,
                                        reinterpret_cast<const float4*>(aligned.in),
                                        reinterpret_cast<float4*>(aligned.out), vectors,
                                        aligned.rounds, last...);
                      },
                      more);
                });
              },
          .use = [=] { return kernel_use(kernel, options.threads); },
          .at = std::move(at)};
}

}  // namespace ladder::copy
