// The elementwise kernel for all GPUs from compute capability 8.0. A block takes one tile. Each
// thread loads all its vectors of the tile before it computes the first; consecutive threads take
// consecutive vectors.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "penstock/ops/transform/cut.h"
#include "penstock/ops/transform/vector.cuh"

namespace ps::elementwise {

namespace detail {

// Vectors of each input that a thread loads before it computes.
template <class Tuning, unsigned width, class Function, class... In>
inline constexpr unsigned plain_steps =
    std::clamp((Light<Function> ? Tuning::light_bytes : Tuning::bytes) /
                   (width * (static_cast<unsigned>(sizeof(In)) + ...)),
               1U, 8U);

// Blocks per SM for __launch_bounds__. This limits the registers; with too few of them the compiler
// delays the last loads until the first results are stored.
template <class Tuning, unsigned width, class Function>
inline constexpr unsigned plain_resident =
    Light<Function> && width > 1 ? Tuning::light_resident : Tuning::resident;

template <class T, unsigned width, unsigned steps>
struct Held {
  Pack<T, width> step[steps];
};

template <class Tuning, unsigned width, unsigned steps, bool whole, class Function, class Out,
          class... In>
__device__ inline void plain_tile(const Function& function, std::size_t vectors, Out* out,
                                  Held<In, width, steps>... held, const In*... in) {
#pragma unroll
  for (unsigned s = 0; s < steps; ++s) {
    const unsigned vector = s * Tuning::threads;
    if (whole || vector < vectors) {
      ((held.step[s] = load_pack<Tuning::load, In, width>(in + vector * width)), ...);
    }
  }
#pragma unroll
  for (unsigned s = 0; s < steps; ++s) {
    const unsigned vector = s * Tuning::threads;
    if (whole || vector < vectors) {
      Pack<Out, width> result;
      apply(function, result, held.step[s]...);
      store_pack<Tuning::store>(out + vector * width, result);
    }
  }
}

}  // namespace detail

// Computes one element before or after the body.
template <class Function, class Out, class... In>
__device__ inline void ragged_element(const Cut& cut, unsigned number, const Function& function,
                                      Out* out, const In*... in) {
  const std::size_t i = number < cut.head ? number : number + cut.body;
  Pack<Out, 1> result;
  apply(function, result, Pack<In, 1>{{in[i]}}...);
  out[i] = result.value[0];
}

// `out` and `in` point to the first element, `cut.head` elements before the body.
template <class Tuning, unsigned width, class Function, class Out, class... In>
__global__ void __launch_bounds__(Tuning::threads,
                                  (detail::plain_resident<Tuning, width, Function>))
    plain_kernel(Cut cut, Function function, Out* out, const In*... in) {
  constexpr unsigned steps = detail::plain_steps<Tuning, width, Function, In...>;
  constexpr unsigned tile = Tuning::threads * steps;
  const std::size_t vectors = cut.body / width;
  const std::size_t first = std::size_t{blockIdx.x} * tile, mine = first + threadIdx.x;
  const std::size_t begin = cut.head + mine * width;
  if (first + tile <= vectors) {
    detail::plain_tile<Tuning, width, steps, true, Function, Out, In...>(
        function, 0, out + begin, detail::Held<In, width, steps>{}..., (in + begin)...);
  } else if (mine < vectors) {
    detail::plain_tile<Tuning, width, steps, false, Function, Out, In...>(
        function, vectors - mine, out + begin, detail::Held<In, width, steps>{}...,
        (in + begin)...);
  }

  if (blockIdx.x == gridDim.x - 1 && threadIdx.x < cut.ragged) {
    ragged_element(cut, threadIdx.x, function, out, in...);
  }
}

namespace detail {

template <class Tuning, unsigned width, class Function, class Out, class... In>
cudaError_t launch_plain_as(const Function& function, const Cut& cut, cudaStream_t stream, Out* out,
                            const In*... in) {
  constexpr std::size_t tile = Tuning::threads * plain_steps<Tuning, width, Function, In...>;
  const std::size_t tiles = (cut.body / width + tile - 1) / tile;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(std::max<std::size_t>(tiles, 1)));
  config.blockDim = dim3(Tuning::threads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, plain_kernel<Tuning, width, Function, Out, In...>, cut,
                            function, out, in...);
}

}  // namespace detail

// Enqueues out[i] = function(in[i]...) for all i and returns the launch's status. Operands that
// cannot be aligned together are processed element by element.
template <class Tuning, class Function, class Out, class... In>
cudaError_t launch_plain(const Function& function, std::size_t elements, cudaStream_t stream,
                         Out* out, const In*... in) {
  constexpr unsigned width = vector_width<Out, In...>();
  const auto operand = [](const auto* data) {
    constexpr auto element = static_cast<unsigned>(sizeof(*data));
    return Operand{reinterpret_cast<std::uintptr_t>(data), element, element * width};
  };
  const auto cut = cut_at_boundaries({operand(out), operand(in)...}, elements, width);
  if (cut) {
    return detail::launch_plain_as<Tuning, width>(function, *cut, stream, out, in...);
  }
  return detail::launch_plain_as<Tuning, 1>(function, Cut{elements, 0, 0}, stream, out, in...);
}

}  // namespace ps::elementwise
