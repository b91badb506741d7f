// Few words and rows between the device and page-locked memory, which kernels reach over the link.
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

// The tokens of a call, in chunks of 16 bytes.
struct Tokens {
  const uint4* x = nullptr;
  std::uint64_t row_chunks = 0;       // from one row to the next
  unsigned tokens = 0, chunks = 0;    // chunks of one row
  const std::int32_t* ids = nullptr;  // one of the next two
  const std::int64_t* long_ids = nullptr;
  unsigned pairs = 0;
};

// One block: the tokens are so few that the link is not the limit.
__device__ void publish_tokens(const Tokens& from, unsigned experts, const MoeRouting& to) {
  auto* const x = static_cast<uint4*>(to.x);
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < from.tokens * from.chunks; i += threads) {
    const unsigned token = i / from.chunks;
    x[i] = from.x[token * from.row_chunks + (i - token * from.chunks)];
  }
  for (unsigned i = threadIdx.x; i < from.pairs; i += threads) {
    const std::int64_t id = from.ids != nullptr ? from.ids[i] : from.long_ids[i];
    to.ids[i] = id >= 0 && id < experts ? static_cast<std::int32_t>(id) : -1;
  }
}

__global__ void __launch_bounds__(threads)
    publish_rows(const std::uint32_t* offsets, unsigned experts, const MoeRouting to,
                 const Tokens tokens) {
  for (unsigned e = threadIdx.x; e < experts; e += threads) {
    to.rows[e] = offsets[e + 1] - offsets[e];
  }
  if (to.x != nullptr) publish_tokens(tokens, experts, to);
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

// One block per row of the workspace. What the host wrote is read past the caches.
__global__ void __launch_bounds__(threads)
    take_rows(const std::int32_t* host_place, const uint4* host_y, const unsigned* rows,
              const unsigned* source, unsigned chunks, uint4* y, int* place) {
  const unsigned row = blockIdx.x;
  if (row >= *rows) return;
  const unsigned pair = source[row];
  const std::int32_t there = __ldcv(host_place + pair);
  if (there < 0) return;
  const uint4* const from = host_y + std::uint64_t(there) * chunks;
  for (unsigned i = threadIdx.x; i < chunks; i += threads) {
    y[std::uint64_t{row} * chunks + i] = __ldcv(from + i);
  }
  if (threadIdx.x == 0) place[pair] = static_cast<int>(row);
}

unsigned chunks_of(const MoeWork& work) {
  return static_cast<unsigned>(static_cast<std::size_t>(work.hidden) * size_of(work.type) /
                               sizeof(uint4));
}

Tokens tokens_of(const MoeWork& work) {
  const bool wide = work.id_type == DType::i64;
  const std::size_t row = static_cast<std::size_t>(work.x_row) * size_of(work.type);
  return {.x = static_cast<const uint4*>(work.x),
          .row_chunks = row / sizeof(uint4),
          .tokens = static_cast<unsigned>(work.tokens),
          .chunks = chunks_of(work),
          .ids = wide ? nullptr : static_cast<const std::int32_t*>(work.ids),
          .long_ids = wide ? static_cast<const std::int64_t*>(work.ids) : nullptr,
          .pairs = static_cast<unsigned>(work.rows())};
}

constexpr kit::LaunchOptions one_block{.grid = 1, .block = threads};

template <class Id>
void publish(const TensorView& ids, unsigned experts, const MoeRouting& to, cudaStream_t stream) {
  kit::launch(publish_ids<Id>, one_block, stream, static_cast<const Id*>(ids.data()),
              static_cast<std::uint64_t>(ids.elements()), experts, to);
}

}  // namespace

void moe_publish_rows_gpu(const MoeWork& work, const MoeRouting& to, const Stream& stream) {
  const CurrentGpu current(stream.device());
  const std::uint32_t* offsets = work.space.expert_offsets(work.memory);
  kit::launch(publish_rows, one_block, cuda_stream(stream), offsets,
              static_cast<unsigned>(work.experts), to,
              to.x != nullptr ? tokens_of(work) : Tokens{});
}

void moe_publish_ids_gpu(const TensorView& ids, std::int64_t experts, const MoeRouting& to,
                         const Stream& stream) {
  const CurrentGpu current(stream.device());
  const auto count = static_cast<unsigned>(experts);
  if (ids.dtype() == DType::i64) {
    return publish<std::int64_t>(ids, count, to, cuda_stream(stream));
  }
  publish<std::int32_t>(ids, count, to, cuda_stream(stream));
}

void moe_load_publish_ids_gpu(const Device& device) {
  const CurrentGpu current(device);
  const kit::LoadKernels loads;
  publish<std::int32_t>({}, 0, {}, nullptr);
  publish<std::int64_t>({}, 0, {}, nullptr);
}

void moe_take_slots_gpu(const std::int32_t* from, const TensorView& slots, const Stream& stream) {
  const CurrentGpu current(stream.device());
  kit::launch(take_slots, one_block, cuda_stream(stream), from,
              static_cast<std::int32_t*>(slots.data()), static_cast<unsigned>(slots.elements()));
}

void moe_take_rows_gpu(const MoeWork& work, const MoeHostRows& from, const Stream& stream) {
  const CurrentGpu current(stream.device());
  const MoeWorkspace& space = work.space;
  const kit::LaunchOptions blocks{.grid = static_cast<unsigned>(work.rows()), .block = threads};
  kit::launch(take_rows, blocks, cuda_stream(stream), from.place, static_cast<const uint4*>(from.y),
              static_cast<const unsigned*>(space.expert_offsets(work.memory) + work.experts),
              static_cast<const unsigned*>(space.source_pairs(work.memory)), chunks_of(work),
              reinterpret_cast<uint4*>(space.y_rows(work.memory)),
              static_cast<int*>(space.pair_rows(work.memory)));
}

void moe_load_kernels_gpu(const MoeOptions& options, const Stream& stream) {
  const kit::LoadKernels loads;
  moe_take_rows(options, {}, stream);
  moe_take_slots_gpu(nullptr, options.slots, stream);
  moe_experts(options, stream);
  moe_combine(options, stream);
}

}  // namespace ps::detail
