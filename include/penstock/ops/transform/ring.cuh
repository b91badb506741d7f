// The elementwise kernel of Hopper: blocks stay; one warp loads stages by bulk copies into a ring
// in shared memory, others compute, and where the tuning says so one more sends their results by
// bulk copies through a second ring. Compute capability 9.0; nothing in code for less.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "penstock/kit/barrier.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/roles.cuh"
#include "penstock/ops/transform/cut.h"
#include "penstock/ops/transform/plain.cuh"

namespace ps::elementwise {

template <class Tuning, class Out, class... In>
struct RingShape {
  static constexpr unsigned width = vector_width<Out, In...>();
  static constexpr unsigned element_bytes = (static_cast<unsigned>(sizeof(In)) + ...);
  static constexpr unsigned steps =
      std::clamp(Tuning::stage_bytes / (Tuning::threads * width * element_bytes), 1U, 8U);
  static constexpr unsigned tile = Tuning::threads * width * steps;  // elements
  static constexpr unsigned stage_bytes = tile * element_bytes;
  static constexpr unsigned result_bytes = tile * static_cast<unsigned>(sizeof(Out));
  static constexpr std::size_t shared_bytes =
      std::size_t{Tuning::depth} * stage_bytes + std::size_t{Tuning::stored_depth} * result_bytes;

  static constexpr bool sends = Tuning::stored_depth > 0;
  static constexpr unsigned result_stages = sends ? Tuning::stored_depth : 1;
  static constexpr unsigned warps = Tuning::threads / kit::warp_threads;
  using Roles = kit::Roles<1, warps, sends ? 1 : 0>;

  // Bulk copies move multiples of 16 bytes.
  static constexpr unsigned granule() {
    unsigned smallest = sends ? sizeof(Out) : 16;
    ((smallest = sizeof(In) < smallest ? sizeof(In) : smallest), ...);
    return std::max(16 / smallest, width);
  }

  // Calls use(offset...) with where each input lies in a stage, in bytes.
  template <class Use>
  __device__ static void with_offsets(const Use& use) {
    constexpr unsigned sizes[] = {static_cast<unsigned>(sizeof(In))...};
    const auto before = [&](unsigned input) {
      unsigned bytes = 0;
      for (unsigned i = 0; i < input; ++i) bytes += tile * sizes[i];
      return bytes;
    };
    [&]<std::size_t... input>(std::index_sequence<input...>) {
      use(before(input)...);
    }(std::index_sequence_for<In...>{});
  }
};

namespace detail {

// This thread's vectors of one input's tile in shared memory.
template <class T, unsigned width, unsigned steps, unsigned threads>
__device__ inline Held<T, width, steps> read_stage(const unsigned char* stage, unsigned thread) {
  const auto* packs = reinterpret_cast<const Pack<T, width>*>(stage);
  Held<T, width, steps> held;
#pragma unroll
  for (unsigned s = 0; s < steps; ++s) held.step[s] = packs[s * threads + thread];
  return held;
}

// Gives the stage back when all is read, then computes and puts the first `count` elements.
template <class Out, unsigned threads, unsigned width, unsigned steps, class Release, class Put,
          class Function, class... In>
__device__ inline void compute_stage(const Function& function, unsigned thread, unsigned count,
                                     const Release& release, const Put& put,
                                     const Held<In, width, steps>&... held) {
  release();
#pragma unroll
  for (unsigned s = 0; s < steps; ++s) {
    const unsigned vector = s * threads + thread;
    if (vector * width < count) {
      Pack<Out, width> result;
      apply(function, result, held.step[s]...);
      put(vector, result);
    }
  }
}

}  // namespace detail

template <class Tuning, class Function, class Out, class... In>
__global__ void __launch_bounds__(RingShape<Tuning, Out, In...>::Roles::threads, Tuning::blocks)
    ring_kernel(Cut cut, Function function, Out* out, const In*... in) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Shape = RingShape<Tuning, Out, In...>;
  using Roles = typename Shape::Roles;
  constexpr unsigned tile = Shape::tile, width = Shape::width, threads = Tuning::threads;

  // Shared storage: stages of inputs, then stages of results.
  extern __shared__ __align__(128) unsigned char storage[];
  __shared__ kit::Ring<kit::Barrier, Tuning::depth> loaded;
  __shared__ kit::Ring<kit::Barrier, Shape::result_stages> stored;
  unsigned char* const results = storage + Tuning::depth * Shape::stage_bytes;

  // Setup.
  if (threadIdx.x == 0) {
    loaded.init(1, Shape::warps);
    stored.init(Shape::warps, 1);
    kit::fence_barrier_init();
  }
  __syncthreads();
  const kit::Role role = Roles::role();
  const std::size_t first = std::size_t{blockIdx.x} * tile, stride = std::size_t{gridDim.x} * tile;
  const auto count_at = [&](std::size_t begin) {
    return static_cast<unsigned>(min(std::size_t{tile}, cut.body - begin));
  };

  if (role == kit::Role::loader) {
    if (kit::elect()) {
      kit::Producer producer(loaded);
      const kit::CacheHint hint = kit::evict_first();
      for (std::size_t begin = first; begin < cut.body; begin += stride) {
        const unsigned count = count_at(begin);
        const unsigned stage = producer.acquire(count * Shape::element_bytes);
        unsigned char* to = storage + stage * Shape::stage_bytes;
        const auto load = [&](const auto* from) {
          kit::bulk_load(to, from + cut.head + begin, count * sizeof(*from), producer.full(stage),
                         hint);
          to += tile * sizeof(*from);
        };
        (load(in), ...);
      }
    }
  } else if (role == kit::Role::compute) {
    kit::Consumer consumer(loaded);
    kit::Producer sender(stored);
    const unsigned thread = Roles::index(role);
    const bool speaks = thread % kit::warp_threads == 0;  // for its warp
    const auto release = [&] {
      __syncwarp();
      if (speaks) {
        consumer.release();
      } else {
        consumer.skip_release();
      }
    };
    for (std::size_t begin = first; begin < cut.body; begin += stride) {
      const unsigned count = count_at(begin);
      const unsigned char* stage = storage + consumer.wait() * Shape::stage_bytes;
      const auto compute = [&](const auto& put) {
        Shape::with_offsets([&](auto... offset) {
          detail::compute_stage<Out, threads>(
              function, thread, count, release, put,
              detail::read_stage<In, width, Shape::steps, threads>(stage + offset, thread)...);
        });
      };
      if constexpr (Shape::sends) {
        Out* const to = reinterpret_cast<Out*>(results + sender.acquire() * Shape::result_bytes);
        compute([&](unsigned vector, const Pack<Out, width>& result) {
          reinterpret_cast<Pack<Out, width>*>(to)[vector] = result;
        });
        kit::fence_shared_to_async();
        __syncwarp();
        if (speaks) sender.commit();
      } else {
        Out* const to = out + cut.head + begin;
        compute([&](unsigned vector, const Pack<Out, width>& result) {
          store_pack<Tuning::store>(to + vector * width, result);
        });
      }
    }
    if (blockIdx.x == gridDim.x - 1 && thread < cut.ragged) {
      ragged_element(cut, thread, function, out, in...);
    }
  } else if (kit::elect()) {
    kit::Consumer consumer(stored);
    const kit::CacheHint hint = kit::evict_first();
    constexpr unsigned pending = Shape::result_stages / 2;  // stores that still read their stage
    unsigned begun = 0;
    for (std::size_t begin = first; begin < cut.body; begin += stride) {
      const unsigned stage = consumer.wait();
      kit::bulk_store(out + cut.head + begin, results + stage * Shape::result_bytes,
                      count_at(begin) * static_cast<unsigned>(sizeof(Out)), hint);
      kit::bulk_commit();
      kit::bulk_wait_read<pending>();
      if (++begun > pending) consumer.release();
    }
    kit::bulk_wait<0>();
  }
#endif
}

namespace detail {

// Much dynamic shared memory is asked for once on every device: 48 KiB are allowed to everyone, of
// which the barriers take some.
template <auto kernel>
cudaError_t allow_shared(std::size_t bytes) {
  if (bytes <= 32 * 1024) return cudaSuccess;
  static std::atomic<std::uint64_t> allowed{0};
  int device = 0;
  if (const cudaError_t failed = cudaGetDevice(&device); failed != cudaSuccess) return failed;
  const std::uint64_t bit = std::uint64_t{1} << (device % 64);
  if (device < 64 && (allowed.load() & bit) != 0) return cudaSuccess;
  const cudaError_t failed = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (failed == cudaSuccess) allowed.fetch_or(bit);
  return failed;
}

}  // namespace detail

// Whether ring_kernel is more than an empty shell in the code that this device would run.
template <class Tuning, class Function, class Out, class... In>
bool has_ring() {
  static const bool has = [] {
    cudaFuncAttributes attributes = {};
    const bool found = cudaFuncGetAttributes(
                           &attributes, ring_kernel<Tuning, Function, Out, In...>) == cudaSuccess;
    if (!found) cudaGetLastError();  // so that nobody else finds it
    return found && attributes.ptxVersion >= 90;
  }();
  return has;
}

// Enqueues out[i] = function(in[i]...) for all i, or does nothing and returns nothing where the
// operands' addresses do not suit bulk copies.
template <class Tuning, class Function, class Out, class... In>
std::optional<cudaError_t> launch_ring(const Function& function, std::size_t elements,
                                       int multiprocessors, cudaStream_t stream, Out* out,
                                       const In*... in) {
  using Shape = RingShape<Tuning, Out, In...>;
  const auto operand = [](const auto* data, unsigned boundary) {
    return Operand{reinterpret_cast<std::uintptr_t>(data), static_cast<unsigned>(sizeof(*data)),
                   boundary};
  };
  constexpr unsigned out_boundary =
      Shape::sends ? 16 : Shape::width * static_cast<unsigned>(sizeof(Out));
  const auto cut = cut_at_boundaries({operand(out, out_boundary), operand(in, 16)...}, elements,
                                     Shape::granule());
  if (!cut) return std::nullopt;

  constexpr auto* kernel = ring_kernel<Tuning, Function, Out, In...>;
  const cudaError_t refused = detail::allow_shared<kernel>(Shape::shared_bytes);
  if (refused != cudaSuccess) return refused;
  const std::size_t tiles = (cut->body + Shape::tile - 1) / Shape::tile;
  const std::size_t most = Tuning::blocks * static_cast<std::size_t>(multiprocessors);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(std::clamp<std::size_t>(tiles, 1, most)));
  config.blockDim = dim3(Shape::Roles::threads);
  config.dynamicSmemBytes = Shape::shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, *cut, function, out, in...);
}

}  // namespace ps::elementwise
