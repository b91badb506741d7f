// The portable decode kernel, for compute capability 8.0 and later: cp.async loads the next blocks
// of keys and values while products of this one are computed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>

#include "ops/attention/decode.h"
#include "ops/attention/decode_tile.cuh"
#include "penstock/kit/launch.cuh"

namespace ps::detail::decoding {

// Shared storage
template <class C>
struct PortableShared {
  typename C::Stage stages[C::stages];
  DecodeStep steps[C::stages + 1];
  SequenceRun runs[C::stages + 1];
  alignas(DecodeSteps) unsigned char walk[sizeof(DecodeSteps)];  // of thread 0
  Meeting<C> meeting;
  PartSearch search;
};

template <class C>
__device__ inline void load_block(typename C::Stage& stage, const DecodeCall& decode,
                                  const SequenceRun& of, std::int32_t block) {
  using Element = typename C::Element;
  const portable_attention::Call& call = decode.call;
  const auto head = static_cast<std::uint32_t>(of.run.head);
  // Rows before the first key have negative numbers, and count as rows behind the last one.
  const auto first = static_cast<unsigned>(of.first_key(block, C::keys));
  C::K::template load<C::threads>(
      stage.k,
      portable_attention::key_rows<Element>(call, call.k, call.k_strides, of.run.sequence, head,
                                            of.sequence.at, call.dim),
      first);
  C::V::template load<C::threads>(
      stage.v,
      portable_attention::key_rows<Element>(call, call.v, call.v_strides, of.run.sequence, head,
                                            of.sequence.at, call.dim_v),
      first);
}

// An index that counts to `end` again and again.
template <unsigned end>
class Turns {
 public:
  __device__ unsigned operator()() {
    const unsigned was = next_;
    next_ = next_ + 1 == end ? 0 : next_ + 1;
    return was;
  }

 private:
  unsigned next_ = 0;
};

template <class C, class Call>
__global__ void __launch_bounds__(C::threads) decode_kernel(const __grid_constant__ Call decode) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<PortableShared<C>*>(memory);

  // Setup
  find_part<C::threads>(decode.shape, shared.search);
  if constexpr (Call::appends) append_rows_of_part<C>(decode, shared.search.part);
  // In shared memory, because products need the registers. One step ahead of the loads.
  auto& steps = reinterpret_cast<DecodeSteps&>(shared.walk);
  if (threadIdx.x == 0) new (&steps) DecodeSteps(decode, shared.search.part);
  Turns<C::stages + 1> to_write, to_load, to_compute;
  Turns<C::stages> filled, emptied;
  const auto write_step = [&] {
    if (threadIdx.x == 0) shared.steps[to_write()] = steps.next(shared.runs, true);
  };
  const auto load_next = [&] {
    const DecodeStep& step = shared.steps[to_load()];
    typename C::Stage& stage = shared.stages[filled()];
    if (step.is_there) load_block<C>(stage, decode, shared.runs[step.run], step.block);
    kit::cp_async_commit();
  };
  for (unsigned i = 0; i < C::stages; ++i) write_step();
  __syncthreads();
  for (unsigned i = 0; i + 1 < C::stages; ++i) load_next();

  // Steps
  DecodeTile<C, Call> tile(decode, shared.meeting, kit::warp_index());
  for (;;) {
    const DecodeStep& step = shared.steps[to_compute()];
    if (!step.is_there) break;
    kit::cp_async_wait<C::stages - 2>();
    __syncthreads();  // the block is there, and nobody uses the step and the stage before
    load_next();
    write_step();
    if (step.begins) tile.begin(shared.runs[step.run]);
    tile.add(shared.stages[emptied()], shared.runs[step.run], step.block);
    if (step.ends) tile.finish(static_cast<std::int32_t>(blockIdx.x), shared.runs[step.run]);
  }
  kit::cp_async_wait<0>();
  if (threadIdx.x == 0) steps.store_joint();
}

// Launch
template <class C, class Call>
void launch_portable(const AttentionWork& work, cudaStream_t stream) {
  static_assert(sizeof(PortableShared<C>) <= portable_attention::least_shared_bytes);
  kit::LaunchOptions options;
  options.block = C::threads;
  options.shared_bytes = sizeof(PortableShared<C>);
  options.grid = decode_grid(work, kit::resident_clusters(decode_kernel<C, Call>, options));
  kit::launch(decode_kernel<C, Call>, options, stream, decode_call<Call>(work, C::keys));
  attention_decode_combine(work, static_cast<std::int32_t>(options.grid.x), C::keys, stream);
}

template <class Element, class Call>
void run_portable(const AttentionWork& work, cudaStream_t stream) {
  const std::int32_t d = work.dim, v = work.dim_v;
  if (d <= 64 && v <= 64) {
    return launch_portable<DecodeConfig<Element, 64, 64, 64, 4>, Call>(work, stream);
  }
  if (d <= 96 && v <= 96) {
    return launch_portable<DecodeConfig<Element, 96, 96, 64, 3>, Call>(work, stream);
  }
  if (d <= 128 && v <= 128) {
    return launch_portable<DecodeConfig<Element, 128, 128, 64, 2>, Call>(work, stream);
  }
  if (d <= 192 && v <= 128) {
    return launch_portable<DecodeConfig<Element, 192, 128, 64, 2>, Call>(work, stream);
  }
  launch_portable<DecodeConfig<Element, 256, 256, 32, 2>, Call>(work, stream);
}

}  // namespace ps::detail::decoding
