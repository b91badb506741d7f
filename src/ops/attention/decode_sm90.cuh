// The decode kernel on Hopper: one warp loads blocks of keys and values through tensor maps into a
// ring, the others multiply.
#pragma once

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
  std::int32_t box_rows;
};

// Shared storage
template <class C>
struct HopperShared {
  typename C::Stage stages[C::stages];
  DecodeStep steps[C::stages];
  kit::Ring<kit::Barrier, C::stages> ring;
  Meeting<C> meeting;
  PartSearch search;
};

// Loads the blocks of a part. Used by a warp, of which every lane loads some boxes.
template <class C, class Call>
class HopperLoader {
 public:
  __device__ HopperLoader(HopperShared<C>& shared, const HopperCall<Call>& call)
      : shared_(shared), call_(call), ring_(shared.ring) {}

  __device__ void run() {
    DecodeSteps steps(call_.decode, shared_.search.part);
    const bool leads = kit::lane_index() == 0;
    for (bool is_there = true; is_there;) {
      const unsigned slot = ring_.acquire();
      DecodeStep& step = shared_.steps[slot];
      if (leads) steps.next(step);
      __syncwarp();
      is_there = step.is_there;
      if (leads) {
        if (is_there) {
          ring_.full(slot).arrive_expect(C::K::bytes + C::V::bytes);
        } else {
          ring_.full(slot).arrive();
        }
      }
      __syncwarp();
      if constexpr (Call::appends) {
        if (is_there) append_rows_of_step<C>(call_.decode, step);
      }
      if (is_there) load(slot, step);
    }
    if (leads) steps.store_joint();
  }

 private:
  __device__ void load(unsigned slot, const DecodeStep& step) {
    const auto boxes = C::keys / static_cast<unsigned>(call_.box_rows);
    typename C::Stage& stage = shared_.stages[slot];
    for (unsigned i = kit::lane_index(); i < boxes * C::K::panels; i += kit::warp_threads) {
      load_box<typename C::K>(stage.k, call_.k, slot, step, i % boxes, i / boxes);
    }
    for (unsigned i = kit::lane_index(); i < boxes * C::V::panels; i += kit::warp_threads) {
      load_box<typename C::V>(stage.v, call_.v, slot, step, i % boxes, i / boxes);
    }
  }

  template <class Tile>
  __device__ void load_box(unsigned char* to, const kit::TensorMap& map, unsigned slot,
                           const DecodeStep& step, unsigned box, unsigned panel) {
    const std::int32_t in_block = static_cast<std::int32_t>(box) * call_.box_rows;
    const AttentionPlace at = place(step, step.first_key(C::keys) + in_block);
    kit::tensor_load(
        to + panel * Tile::panel_bytes + static_cast<unsigned>(in_block) * Tile::span_bytes, map,
        ring_.full(slot), kit::evict_first(), static_cast<int>(at.batch), step.run.head,
        static_cast<int>(at.row), static_cast<int>(panel * Tile::span_elements));
  }

  // Where key `key` of a sequence is. Boxes outside the tensor are zeros: those of pages that do
  // not exist, and those without a key of the sequence, whose pages are not looked up.
  __device__ AttentionPlace place(const DecodeStep& step, std::int32_t key) const {
    const AttentionPages& pages = call_.decode.call.pages;
    const AttentionSequence& sequence = step.sequence.at;
    const std::int64_t row = std::int64_t{sequence.k_begin} + key;
    if (pages.table == nullptr) return {step.run.sequence, row};
    AttentionPlace found{0, 0, false};
    if (key < sequence.k_length) found = pages(step.run.sequence, row);
    return found.there ? found : AttentionPlace{pages.count, 0, false};
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
    const DecodeStep& step = shared.steps[slot];
    if (!step.is_there) return;
    if (step.begins) tile.begin(step);
    tile.add(shared.stages[slot], step);
    if (step.ends) tile.finish(static_cast<std::int32_t>(blockIdx.x), step);
    __syncwarp();
    if (kit::elect()) {
      ring.release();
    } else {
      ring.skip_release();
    }
  }
}

template <class C, class Call>
__global__ void __launch_bounds__(C::threads + kit::warp_threads, 1)
    decode_sm90_kernel(const __grid_constant__ HopperCall<Call> call) {
  static_assert(sizeof(HopperShared<C>) <= 227 * 1024, "a block has 227 KiB of shared memory");
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
  kit::wait_for_previous();
  kit::let_next_start();
  find_part<C::threads + kit::warp_threads>(call.decode.shape, shared.search);

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
  const HopperCall<Call> call{
      .decode = decode_call<Call>(work, C::keys),
      .k = attention_map_of_keys(work, place, work.k, work.dim, work.k_strides, C::keys,
                                 K::span_elements, K::swizzle),
      .v = attention_map_of_keys(work, place, work.v, work.dim_v, work.v_strides, C::keys,
                                 V::span_elements, V::swizzle),
      .box_rows = static_cast<std::int32_t>(attention_box_rows(work, C::keys))};
  kit::LaunchOptions options;
  options.block = C::threads + kit::warp_threads;
  options.shared_bytes = sizeof(HopperShared<C>);
  options.overlaps_previous = true;
  options.grid = decode_grid(kit::resident_clusters(decode_sm90_kernel<C, Call>, options));
  kit::launch(decode_sm90_kernel<C, Call>, options, stream, call);
  attention_decode_combine(work, static_cast<std::int32_t>(options.grid.x), C::keys, stream);
}

template <class Element, class Call>
void run_sm90(const AttentionWork& work, Place place, cudaStream_t stream) {
  switch (work.dim) {
    case 64:
      return launch_sm90<DecodeConfig<Element, 64, 64, 128, 6>, Call>(work, place, stream);
    case 96:
      return launch_sm90<DecodeConfig<Element, 96, 96, 128, 4>, Call>(work, place, stream);
    case 128:
      return launch_sm90<DecodeConfig<Element, 128, 128, 128, 3>, Call>(work, place, stream);
    case 192:
      return launch_sm90<DecodeConfig<Element, 192, 128, 64, 5>, Call>(work, place, stream);
    default:
      return launch_sm90<DecodeConfig<Element, 256, 256, 64, 3>, Call>(work, place, stream);
  }
}

}  // namespace ps::detail::decoding
