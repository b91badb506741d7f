// Few words between the device and page-locked memory, which kernels reach over the link.
#include "ops/moe/routing.h"

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/launch.h"
#include "penstock/host/cuda.h"
#include "penstock/kit/launch.cuh"

namespace ps::detail {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned most_experts = 1024;

// Sets the flag once the rows that all threads of the block wrote are visible to the host.
__device__ void raise(const MoeRouting& to) {
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  *static_cast<volatile std::uint32_t*>(to.flag) = to.value;
}

__global__ void __launch_bounds__(threads)
    publish_rows(const std::uint32_t* offsets, unsigned experts, const MoeRouting to) {
  for (unsigned e = threadIdx.x; e < experts; e += threads) {
    to.rows[e] = offsets[e + 1] - offsets[e];
  }
  raise(to);
}

template <class Id>
__global__ void __launch_bounds__(threads)
    publish_ids(const Id* ids, std::uint64_t pairs, unsigned experts, const MoeRouting to) {
  __shared__ unsigned counts[most_experts];
  for (unsigned e = threadIdx.x; e < experts; e += threads) counts[e] = 0;
  __syncthreads();
  for (std::uint64_t i = threadIdx.x; i < pairs; i += threads) {
    const Id id = ids[i];
    if (id >= 0 && id < static_cast<Id>(experts)) atomicAdd(&counts[id], 1);
  }
  __syncthreads();
  for (unsigned e = threadIdx.x; e < experts; e += threads) to.rows[e] = counts[e];
  raise(to);
}

__global__ void __launch_bounds__(threads)
    take_slots(const volatile std::int32_t* from, std::int32_t* to, unsigned experts) {
  for (unsigned e = threadIdx.x; e < experts; e += threads) to[e] = from[e];
}

constexpr kit::LaunchOptions one_block{.grid = 1, .block = threads};

template <class Id>
void publish(const TensorView& ids, unsigned experts, const MoeRouting& to, cudaStream_t stream) {
  kit::launch(publish_ids<Id>, one_block, stream, static_cast<const Id*>(ids.data()),
              static_cast<std::uint64_t>(ids.elements()), experts, to);
}

}  // namespace

void moe_publish_rows_gpu(const std::uint32_t* offsets, std::int64_t experts, const MoeRouting& to,
                          const Stream& stream) {
  const cuda::Guard current(backend_of(stream.device()));
  kit::launch(publish_rows, one_block, cuda_stream(stream), offsets, static_cast<unsigned>(experts),
              to);
}

void moe_publish_ids_gpu(const TensorView& ids, std::int64_t experts, const MoeRouting& to,
                         const Stream& stream) {
  const cuda::Guard current(backend_of(stream.device()));
  const auto count = static_cast<unsigned>(experts);
  if (ids.dtype() == DType::i64) {
    return publish<std::int64_t>(ids, count, to, cuda_stream(stream));
  }
  publish<std::int32_t>(ids, count, to, cuda_stream(stream));
}

void moe_take_slots_gpu(const std::int32_t* from, const TensorView& slots, const Stream& stream) {
  const cuda::Guard current(backend_of(stream.device()));
  kit::launch(take_slots, one_block, cuda_stream(stream), from,
              static_cast<std::int32_t*>(slots.data()), static_cast<unsigned>(slots.elements()));
}

void moe_load_kernels_gpu(const MoeOptions& options, const Stream& stream) {
  const kit::LoadKernels loads;
  moe_take_slots_gpu(nullptr, options.slots, stream);
  moe_experts(options, stream);
  moe_combine(options, stream);
}

}  // namespace ps::detail
