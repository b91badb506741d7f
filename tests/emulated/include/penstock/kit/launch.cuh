// launch() for emulated kernels: the grid runs as one piece of work of the fake driver's stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>

#include "emulated/block.h"

namespace ps::emulated {

// Enqueues a kernel. Throws DeviceError if the driver refuses it.
void enqueue(cudaStream_t stream, const dim3& grid, std::function<void()> run);

}  // namespace ps::emulated

namespace ps::kit {

struct LaunchOptions {
  dim3 grid = 1;
  dim3 block = 1;
  std::size_t shared_bytes = 0;
  unsigned cluster = 1;
  bool overlaps_previous = false;
  bool all_blocks_at_once = false;
};

inline void wait_for_previous() {}
inline void let_next_start() {}

template <class... Parameter, class... Argument>
void launch(void (*kernel)(Parameter...), const LaunchOptions& options, cudaStream_t stream,
            Argument&&... arguments) {
  std::tuple<std::decay_t<Parameter>...> values(std::forward<Argument>(arguments)...);
  emulated::enqueue(stream, options.grid, [=] {
    emulated::run_grid(options.grid, options.block, [&] { std::apply(kernel, values); });
  });
}

// A number that no size divides: blocks then begin and end inside of what they share.
template <class... Parameter>
unsigned resident_clusters(void (*)(Parameter...), const LaunchOptions&) {
  return 7;
}

}  // namespace ps::kit
