// Launches the experts' two products on Hopper. Both run over a table of work items that a previous
// kernel wrote, so that the host needs no count of rows.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "ops/moe/gpu.h"
#include "ops/moe/sm90_maps.h"
#include "ops/moe/sm90_parts.cuh"
#include "ops/moe/sm90_stores.cuh"
#include "penstock/kit/gemm/launch.cuh"

namespace ps::detail {
using kit::TensorMap;

// Whether the weights' columns are contiguous, not their rows.
inline bool gate_up_by_column(const MoeWork& work) { return work.held.gate_up_column != 1; }
inline bool down_by_column(const MoeWork& work) { return work.held.down_column != 1; }

// Whether a product needs no more than the kernels for K-major weights without biases, with SwiGLU.
inline bool plain_up(const MoeWork& work) {
  return !gate_up_by_column(work) && work.held.gate_up_bias == nullptr &&
         work.gate.activation == MoeActivation::swiglu;
}
inline bool plain_down(const MoeWork& work) {
  return !down_by_column(work) && work.held.down_bias == nullptr;
}

// The map of gate and up that Columns (sm90_columns.cuh) loads from.
template <class Columns>
TensorMap gate_up_map(const MoeWork& work, Place place) {
  if constexpr (std::is_same_v<Columns, MoeEights>) {
    return gate_up_rows_map(work, place, 16);
  } else if constexpr (std::is_same_v<Columns, MoePanels>) {
    const std::int64_t n = work.width;
    return weights_map(work.held.gate_up, work, place, {work.slot_count, 2, work.hidden, n},
                       {work.held.gate_up_slot, n, work.held.gate_up_column, 1}, {1, 2, 64, 64});
  } else {
    return gate_up_columns_map(work, place);
  }
}

template <kit::Major major>
TensorMap down_map(const MoeWork& work, Place place) {
  if constexpr (major == kit::Major::k) {
    return down_rows_map(work, place, moe_item_columns);
  } else {
    return down_columns_map(work, place);
  }
}

template <class Element>
MoeBias<Element> up_bias(const MoeWork& work) {
  const bool interleaved = work.layout == GateUpLayout::interleaved;
  const auto n = static_cast<unsigned>(work.width);
  return {static_cast<const Element*>(work.held.gate_up_bias), work.held.gate_up_bias_slot, n,
          interleaved ? 2u : 1u, interleaved ? 1u : n};
}

template <class Element>
MoeBias<Element> down_bias(const MoeWork& work) {
  return {static_cast<const Element*>(work.held.down_bias), work.held.down_bias_slot,
          static_cast<unsigned>(work.hidden), 1, 0};
}

inline MoeOrder moe_order(const MoeSpace& space, bool up) {
  return {up ? space.up_items : space.down_items, space.counters + (up ? 0 : 1),
          space.counters + (up ? 2 : 3)};
}

// The kernels of moe(): slots in the ring of operands, and buffers of each consumer for results.
struct MoeOverlapped {
  static constexpr unsigned depth = 3, pieces = 3;
};
// One slot in the ring, and stores that are waited for.
struct MoeSequential {
  static constexpr unsigned depth = 1, pieces = 1;
};

// The up-projection. `Given` is a MoeConfig, or one with tracing enabled (kit::TracedGemm).
template <class Given, unsigned pieces, class Columns, bool plain>
void run_up(const MoeWork& work, Place place, cudaStream_t stream,
            const kit::TraceBuffer<Given::traced>& trace = {}) {
  using Config = MoeConfigFor<Given, Columns::major>;
  using Loader = MoeGatherLoader<Config, Columns>;
  using Gemm = kit::Gemm<Config, MoeUpStore<Config, pieces, Columns, plain>, Loader, MoeOrder,
                         kit::Tall<Config>>;
  const MoeSpace space(work);
  const TensorView h(space.h, work.type, {work.rows(), work.width}, place);
  const typename Loader::Arguments operands{work.x,
                                            space.source,
                                            kit::Divisor(static_cast<unsigned>(work.choices)),
                                            static_cast<unsigned>(work.x_row / 8),
                                            static_cast<unsigned>(work.hidden / 8),
                                            gate_up_map<Columns>(work, place)};
  kit::launch_gemm<Gemm>(
      operands, kit::gemm_steps<Config>(work.hidden),
      {kit::encode(kit::ragged_options(h)), up_bias<typename Config::Element>(work), work.gate},
      moe_order(space, true), kit::gemm_resident<Gemm>(), stream, trace, true);
}

// The down-projection.
template <class Given, unsigned pieces, kit::Major major, bool plain>
void run_down(const MoeWork& work, Place place, cudaStream_t stream,
              const kit::TraceBuffer<Given::traced>& trace = {}) {
  using Config = MoeConfigFor<Given, major>;
  using Gemm = kit::Gemm<Config, MoeDownStore<Config, pieces, plain>, MoeDownLoader<Config>,
                         MoeOrder, kit::Tall<Config>>;
  const MoeSpace space(work);
  const TensorView h(space.h, work.type, {work.rows(), work.width}, place);
  const TensorView y(space.y, work.type, {work.rows(), work.hidden}, place);
  kit::launch_gemm<Gemm>(
      {loaded(h, {moe_unit_rows, 64}), down_map<major>(work, place)},
      kit::gemm_steps<Config>(work.width),
      {kit::encode(kit::ragged_options(y)), down_bias<typename Config::Element>(work), work.gate},
      moe_order(space, false), kit::gemm_resident<Gemm>(), stream, trace, true);
}

// Where traced products write their records.
template <bool traced>
struct MoeTraces {
  kit::TraceBuffer<traced> up{}, down{};
};

// Both products, for work that is plain_up() and plain_down().
template <class Config, unsigned pieces>
void run_products_of(const MoeWork& work, Place place, cudaStream_t stream,
                     const MoeTraces<Config::traced>& traces = {}) {
  run_up<Config, pieces, MoeEights, true>(work, place, stream, traces.up);
  run_down<Config, pieces, kit::Major::k, true>(work, place, stream, traces.down);
}

// The products with biases, other activations or weights whose columns are contiguous.
void moe_general_up_sm90(const MoeWork& work, Place place, cudaStream_t stream);
void moe_general_down_sm90(const MoeWork& work, Place place, cudaStream_t stream);
// The down-projection, for work that is moe_narrow().
void moe_narrow_down_sm90(const MoeWork& work, Place place, cudaStream_t stream);

}  // namespace ps::detail
