// The elementwise kernel for compute capability 9.0. A block takes one tile: one thread loads its
// inputs with bulk copies, then all threads compute and store. Grouping a tile's loads and its
// stores is faster on the memory side. Code for older GPUs is empty.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "penstock/kit/barrier.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/ops/transform/cut.h"
#include "penstock/ops/transform/plain.cuh"

namespace ps::elementwise {

template <class Tuning, class Out, class... In>
struct BulkShape {
  static constexpr unsigned width = vector_width<Out, In...>();
  static constexpr unsigned element_bytes = (static_cast<unsigned>(sizeof(In)) + ...);
  static constexpr unsigned steps =
      std::clamp(Tuning::tile_bytes / (Tuning::threads * width * element_bytes), 1U, 8U);
  static constexpr unsigned tile = Tuning::threads * width * steps;  // elements
  static constexpr std::size_t shared_bytes = std::size_t{tile} * element_bytes;
  static_assert(shared_bytes <= 32 * 1024, "more needs a kernel attribute");

  // The byte offset of an input's tile in shared memory.
  __host__ __device__ static constexpr unsigned offset(std::size_t input) {
    constexpr unsigned sizes[] = {static_cast<unsigned>(sizeof(In))...};
    unsigned bytes = 0;
    for (std::size_t i = 0; i < input; ++i) bytes += tile * sizes[i];
    return bytes;
  }

  // The body is a multiple of this many elements, because bulk copies move multiples of 16 bytes.
  static constexpr unsigned granule() {
    unsigned smallest = 16;
    ((smallest = sizeof(In) < smallest ? sizeof(In) : smallest), ...);
    return std::max(16 / smallest, width);
  }
};

template <class Tuning, class Function, class Out, class... In>
__global__ void __launch_bounds__(Tuning::threads, Tuning::resident)
    bulk_kernel(Cut cut, Function function, Out* out, const In*... in) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Shape = BulkShape<Tuning, Out, In...>;
  constexpr unsigned tile = Shape::tile, width = Shape::width;

  // Shared storage.
  extern __shared__ __align__(128) unsigned char storage[];
  __shared__ kit::Barrier full;
  const std::size_t begin = std::size_t{blockIdx.x} * tile;
  const auto count = static_cast<unsigned>(min(std::size_t{tile}, cut.body - begin));

  [&]<std::size_t... i>(std::index_sequence<i...>) {
    if (threadIdx.x == 0 && count > 0) {
      full.init(1);
      kit::fence_barrier_init();
      full.arrive_expect(count * Shape::element_bytes);
      (kit::bulk_load(storage + Shape::offset(i), in + cut.head + begin,
                      count * static_cast<unsigned>(sizeof(In)), full),
       ...);
    }
    __syncthreads();  // the barrier is initialised
    if (count > 0) full.wait(0);
#pragma unroll
    for (unsigned step = 0; step < Shape::steps; ++step) {
      const unsigned vector = step * Tuning::threads + threadIdx.x;
      if (vector * width >= count) break;
      Pack<Out, width> result;
      apply(function, result,
            reinterpret_cast<const Pack<In, width>*>(storage + Shape::offset(i))[vector]...);
      store_pack<Tuning::store>(out + cut.head + begin + vector * width, result);
    }
  }(std::index_sequence_for<In...>{});

  if (blockIdx.x == gridDim.x - 1 && threadIdx.x < cut.ragged) {
    ragged_element(cut, threadIdx.x, function, out, in...);
  }
#endif
}

// Whether bulk_kernel was compiled for compute capability 9.0 in the code that this device runs.
template <class Tuning, class Function, class Out, class... In>
bool has_bulk() {
  static const bool has = [] {
    cudaFuncAttributes attributes = {};
    const bool found = cudaFuncGetAttributes(
                           &attributes, bulk_kernel<Tuning, Function, Out, In...>) == cudaSuccess;
    if (!found) cudaGetLastError();  // clears the error
    return found && attributes.ptxVersion >= 90;
  }();
  return has;
}

// Enqueues out[i] = function(in[i]...) for all i and returns the launch's status. Returns nullopt,
// and enqueues nothing, if the operands' addresses do not suit bulk copies.
template <class Tuning, class Function, class Out, class... In>
std::optional<cudaError_t> launch_bulk(const Function& function, std::size_t elements,
                                       cudaStream_t stream, Out* out, const In*... in) {
  using Shape = BulkShape<Tuning, Out, In...>;
  const auto operand = [](const auto* data, unsigned boundary) {
    return Operand{reinterpret_cast<std::uintptr_t>(data), static_cast<unsigned>(sizeof(*data)),
                   boundary};
  };
  const auto cut = cut_at_boundaries(
      {operand(out, Shape::width * static_cast<unsigned>(sizeof(Out))), operand(in, 16)...},
      elements, Shape::granule());
  if (!cut) return std::nullopt;

  const std::size_t tiles = (cut->body + Shape::tile - 1) / Shape::tile;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(std::max<std::size_t>(tiles, 1)));
  config.blockDim = dim3(Tuning::threads);
  config.dynamicSmemBytes = Shape::shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, bulk_kernel<Tuning, Function, Out, In...>, *cut, function, out,
                            in...);
}

}  // namespace ps::elementwise
