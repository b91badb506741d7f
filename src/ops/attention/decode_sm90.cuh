// The decode kernel on Hopper: one warp loads blocks of keys and values through tensor maps into a
// ring, the others multiply.
#pragma once

#include <bit>
#include <cstdint>

#include "ops/attention/decode.h"
#include "ops/attention/decode_tile.cuh"
#include "ops/attention/sm90_map.cuh"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/tma.cuh"

namespace ps::detail::decoding {

// The arguments of the kernel.
template <class Call>
struct HopperCall {
  Call decode;
  kit::TensorMap k, v;  // {sequences or pages, heads, rows, dimension}
  unsigned box_shift;   // a block of keys has 2^box_shift boxes, at most 32
};

// Shared storage
template <class C>
struct HopperShared {
  typename C::Stage stages[C::stages];
  DecodeStep steps[C::stages];
  SequenceRun runs[C::stages + 1];  // the loader is a step ahead of the ring
  kit::Ring<kit::Barrier, C::stages> ring;
  Meeting<C> meeting;
  PartSearch search;
};

// Blocks of threads that share an SM: one begins or ends while the other one loads.
template <class C>
inline constexpr unsigned hopper_blocks = 227 * 1024 / (sizeof(HopperShared<C>) + 1024);

// Loads the blocks of a part. Used by a warp, whose lanes all know the steps, and load some boxes
// of each.
template <class C, class Call>
class HopperLoader {
 public:
  __device__ HopperLoader(HopperShared<C>& shared, const HopperCall<Call>& call)
      : shared_(shared), call_(call), ring_(shared.ring) {}

  __device__ void run() {
    DecodeSteps steps(call_.decode, shared_.search.part);
    const bool leads = kit::lane_index() == 0;
    for (bool is_there = true; is_there;) {
      const DecodeStep step = steps.next(shared_.runs, leads);
      is_there = step.is_there;
      AttentionPlace from{};
      if (is_there) from = place(steps.run(), step.block);  // pages are looked up before the wait
      const unsigned slot = ring_.acquire();
      if (leads) {
        shared_.steps[slot] = step;
        if (is_there) {
          ring_.full(slot).arrive_expect(C::K::bytes + C::V::bytes);
        } else {
          ring_.full(slot).arrive();
        }
      }
      __syncwarp();
      if (!is_there) break;
      if constexpr (Call::appends) {
        append_rows_of_block<C>(call_.decode, steps.run(), step.block);
      }
      load(slot, steps.run().run.head, from);
    }
    if (leads) steps.store_joint();
  }

 private:
  // Where the box of this lane is, in every panel of a block. Boxes outside the tensor are zeros:
  // those of pages that do not exist, and those without a key of the sequence, whose pages are not
  // looked up.
  __device__ AttentionPlace place(const SequenceRun& of, std::int32_t block) const {
    const AttentionPages& pages = call_.decode.call.pages;
    const AttentionSequence& sequence = of.sequence.at;
    const std::int32_t key = of.first_key(block, C::keys) + static_cast<std::int32_t>(in_block());
    const std::int64_t row = std::int64_t{sequence.k_begin} + key;
    if (pages.table == nullptr) return {of.run.sequence, row};
    AttentionPlace found{0, 0, false};
    if (key < sequence.k_length) found = pages(of.run.sequence, row);
    return found.there ? found : AttentionPlace{pages.count, 0, false};
  }

  __device__ void load(unsigned slot, std::int32_t head, const AttentionPlace& from) {
    typename C::Stage& stage = shared_.stages[slot];
    const unsigned at_once = kit::warp_threads >> call_.box_shift;
    for (unsigned panel = kit::lane_index() >> call_.box_shift; panel < C::K::panels + C::V::panels;
         panel += at_once) {
      if (panel < C::K::panels) {
        load_box<typename C::K>(stage.k, call_.k, slot, head, from, panel);
      } else {
        load_box<typename C::V>(stage.v, call_.v, slot, head, from, panel - C::K::panels);
      }
    }
  }

  template <class Tile>
  __device__ void load_box(unsigned char* to, const kit::TensorMap& map, unsigned slot,
                           std::int32_t head, const AttentionPlace& from, unsigned panel) {
    kit::tensor_load(to + panel * Tile::panel_bytes + in_block() * Tile::span_bytes, map,
                     ring_.full(slot), kit::evict_first(), static_cast<int>(from.batch), head,
                     static_cast<int>(from.row), static_cast<int>(panel * Tile::span_elements));
  }

  // The first row of this lane's box.
  __device__ unsigned in_block() const {
    return (kit::lane_index() & ((1U << call_.box_shift) - 1)) * (C::keys >> call_.box_shift);
  }

  HopperShared<C>& shared_;
  const HopperCall<Call>& call_;
  kit::Producer<kit::Barrier, C::stages> ring_;
};

template <class C, class Call>
__device__ inline void consume(HopperShared<C>& shared, const Call& decode, unsigned warp) {
  kit::Consumer<kit::Barrier, C::stages> ring(shared.ring);
  DecodeTile<C, Call> tile(decode, shared.meeting, warp);
  for (;;) {
    const unsigned slot = ring.wait();
    const DecodeStep step = shared.steps[slot];
    if (!step.is_there) return;
    if (step.begins) tile.begin(shared.runs[step.run]);
    tile.add(shared.stages[slot], shared.runs[step.run], step.block);
    if (step.ends) tile.finish(static_cast<std::int32_t>(blockIdx.x), shared.runs[step.run]);
    __syncwarp();
    if (kit::elect()) ring.empty(slot).arrive();
  }
}

template <class C, class Call>
__global__ void __launch_bounds__(C::threads + kit::warp_threads, hopper_blocks<C>)
    decode_sm90_kernel(const __grid_constant__ HopperCall<Call> call) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<HopperShared<C>*>(memory);

  // Setup
  if (threadIdx.x == kit::warp_threads) {
    kit::prefetch(call.k);
    kit::prefetch(call.v);
  }
  if (threadIdx.x == 0) {
    shared.ring.init(1, C::warps);
    kit::fence_barrier_init();
  }
  // The kernel before may compute the lengths.
  if (!call.decode.shape.alike()) kit::wait_for_previous();
  find_part<C::threads + kit::warp_threads>(call.decode.shape, shared.search);
  kit::wait_for_previous();
  kit::let_next_start();

  // Roles
  if (kit::warp_index() == 0) {
    HopperLoader<C, Call>(shared, call).run();
  } else {
    consume<C>(shared, call.decode, kit::warp_index() - 1);
  }
}

// Launch
template <class C, class Call>
void launch_sm90(const AttentionWork& work, Place place, cudaStream_t stream) {
  using K = typename C::K;
  using V = typename C::V;
  // Every row is read once. Parts of it are not fetched ahead, and neighbours are other heads.
  constexpr auto promotion = kit::L2Promotion::b128;
  const HopperCall<Call> call{
      .decode = decode_call<Call>(work, C::keys),
      .k = attention_map_of_keys(work, place, work.k, work.dim, work.k_strides, C::keys,
                                 K::span_elements, K::swizzle, promotion),
      .v = attention_map_of_keys(work, place, work.v, work.dim_v, work.v_strides, C::keys,
                                 V::span_elements, V::swizzle, promotion),
      .box_shift = static_cast<unsigned>(
          std::countr_zero(C::keys / static_cast<unsigned>(attention_box_rows(work, C::keys))))};
  kit::LaunchOptions options;
  options.block = C::threads + kit::warp_threads;
  options.shared_bytes = sizeof(HopperShared<C>);
  options.overlaps_previous = true;
  options.grid = decode_grid(work, kit::resident_clusters(decode_sm90_kernel<C, Call>, options));
  kit::launch(decode_sm90_kernel<C, Call>, options, stream, call);
  attention_decode_combine(work, static_cast<std::int32_t>(options.grid.x), C::keys, stream);
}

template <class Element, class Call>
void run_sm90(const AttentionWork& work, Place place, cudaStream_t stream) {
  switch (work.dim) {
    case 64:
      return launch_sm90<DecodeConfig<Element, 64, 64, 64, 6>, Call>(work, place, stream);
    case 96:
      return launch_sm90<DecodeConfig<Element, 96, 96, 64, 4>, Call>(work, place, stream);
    case 128:
      return launch_sm90<DecodeConfig<Element, 128, 128, 64, 3>, Call>(work, place, stream);
    case 192:
      return launch_sm90<DecodeConfig<Element, 192, 128, 64, 5>, Call>(work, place, stream);
    default:
      return launch_sm90<DecodeConfig<Element, 256, 256, 64, 3>, Call>(work, place, stream);
  }
}

}  // namespace ps::detail::decoding
