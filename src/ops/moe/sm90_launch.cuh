// Launches the experts' two products on Hopper. Both run over a table of work items that a previous
// kernel wrote, so that the host needs no count of rows.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/moe/gpu.h"
#include "ops/moe/sm90_parts.cuh"
#include "penstock/kit/gemm/launch.cuh"

namespace ps::detail {
using kit::TensorMap;

inline TensorMap loaded(const TensorView& tensor, const kit::MapExtents& box) {
  return kit::encode({.tensor = tensor,
                      .box = box,
                      .swizzle = kit::Swizzle::b128,
                      .l2_promotion = kit::L2Promotion::b256});
}

// Gate and up as {slots, n / 8, 2, 8, d}: a box takes eight rows of gate, the eight rows of up that
// belong to them, and so on. The layouts differ only in the strides.
inline TensorMap gate_up_map(const MoeWork& work, Place place) {
  const std::int64_t row = work.held.gate_up_row, n = work.width;
  const bool interleaved = work.layout == GateUpLayout::interleaved;
  const std::int64_t shape[] = {work.slot_count, n / 8, 2, 8, work.hidden};
  const std::int64_t strides[] = {work.held.gate_up_slot, (interleaved ? 16 : 8) * row,
                                  interleaved ? row : n * row, interleaved ? 2 * row : row, 1};
  return loaded(TensorView(const_cast<void*>(work.held.gate_up), work.type, shape, strides, place),
                {1, 16, 2, 8, 64});
}

inline TensorMap down_map(const MoeWork& work, Place place) {
  const std::int64_t shape[] = {work.slot_count, work.hidden, work.width};
  const std::int64_t strides[] = {work.held.down_slot, work.held.down_row, 1};
  return loaded(TensorView(const_cast<void*>(work.held.down), work.type, shape, strides, place),
                {1, moe_item_columns, 64});
}

inline MoeOrder moe_order(const MoeSpace& space, bool up) {
  return {up ? space.up_items : space.down_items, space.counters + (up ? 0 : 1),
          space.counters + (up ? 2 : 3)};
}

template <class Gemm>
void run_product(const typename Gemm::Loader::Arguments& operands, const TensorMap& out,
                 const MoeOrder& items, std::int64_t k, cudaStream_t stream,
                 const kit::TraceBuffer<Gemm::Config::traced>& trace) {
  kit::LaunchOptions options = kit::gemm_options<Gemm>(kit::gemm_resident<Gemm>());
  options.overlaps_previous = true;
  kit::launch(kit::gemm_kernel<Gemm>, options, stream, operands, out, items,
              kit::gemm_steps<typename Gemm::Config>(k), trace);
}

// The kernels of moe(): slots in the ring of operands, and buffers of each consumer for results.
struct MoeOverlapped {
  static constexpr unsigned depth = 3, pieces = 3;
};
// One slot in the ring, and stores that are waited for.
struct MoeSequential {
  static constexpr unsigned depth = 1, pieces = 1;
};

// Where traced products write their records.
template <bool traced>
struct MoeTraces {
  kit::TraceBuffer<traced> up{}, down{};
};

// `Config` is a MoeConfig, or one with tracing enabled (kit::TracedGemm).
template <class Config, unsigned pieces>
void run_products_of(const MoeWork& work, Place place, cudaStream_t stream,
                     const MoeTraces<Config::traced>& traces = {}) {
  const MoeSpace space(work);
  const TensorView h(space.h, work.type, {work.rows(), work.width}, place);
  const TensorView y(space.y, work.type, {work.rows(), work.hidden}, place);
  const typename MoeGatherLoader<Config>::Arguments up{
      work.x,
      space.source,
      kit::Divisor(static_cast<unsigned>(work.choices)),
      static_cast<unsigned>(work.x_row / 8),
      static_cast<unsigned>(work.hidden / 8),
      gate_up_map(work, place)};
  run_product<MoeUpGemm<Config, pieces>>(up, kit::encode(kit::ragged_options(h)),
                                         moe_order(space, true), work.hidden, stream, traces.up);
  run_product<MoeDownGemm<Config, pieces>>(
      {loaded(h, {moe_unit_rows, 64}), down_map(work, place)}, kit::encode(kit::ragged_options(y)),
      moe_order(space, false), work.width, stream, traces.down);
}

template <class Kernel>
void run_products(const MoeWork& work, Place place, cudaStream_t stream) {
  if (work.type == DType::f16) {
    run_products_of<MoeConfig<__half, Kernel::depth>, Kernel::pieces>(work, place, stream);
  } else {
    run_products_of<MoeConfig<__nv_bfloat16, Kernel::depth>, Kernel::pieces>(work, place, stream);
  }
}

}  // namespace ps::detail
