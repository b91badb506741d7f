// From the sums of a tile to h or y: biases, the activation, and stores of the rows and columns
// that exist. A lane has runs of 16 bytes in each of its rows; its elements are adjacent if runs
// are wide.
#pragma once

#include <cstdint>

#include "ops/moe/activation.cuh"
#include "ops/moe/portable_products.cuh"
#include "ops/moe/portable_tiles.cuh"
#include "penstock/kit/packed.cuh"

namespace ps::detail::moe_portable {

// Where element e of run g is among a lane's sums, and which column of 32 it is. `mixed`: a
// fragment has columns of gate and of up in turn, because gate and up are interleaved in chunks
// that stay whole.
template <class Config, bool mixed>
struct Place {
  static constexpr unsigned pair = Config::pair;

  struct Sum {
    unsigned f, p;
  };
  // In the up-projection `half` says whether of gate (0) or of up (1).
  __device__ static constexpr Sum sum(unsigned g, unsigned e, unsigned half = 0) {
    if (!Config::up) return {4 * g + e / pair, e % pair};
    if (!mixed) return {e / pair * 2 + half, e % pair};
    if (pair == 2) return {e, half};
    return {e % 2 * 4 + half * 2 + e / 2, 0};
  }
  __device__ static unsigned column(unsigned e) {
    const unsigned lane = kit::lane_index() % Config::lanes;
    if (Config::wide) return lane * Config::run + e;
    return mixed ? e * Config::lanes + lane : e / pair * 8 + lane * pair + e % pair;
  }
};

// Stores a run to `out`, where the first of its 32 columns is, of which `columns` exist, a multiple
// of 8.
template <class Config, bool mixed>
__device__ void store_run(typename Config::Element* out, unsigned columns,
                          const float (&values)[Config::run]) {
  using Element = typename Config::Element;
  using Place = Place<Config, mixed>;
  if constexpr (Config::bytes == 4) {
    if (Place::column(0) >= columns) return;
    *reinterpret_cast<float4*>(out + Place::column(0)) =
        make_float4(values[0], values[1], values[2], values[3]);
  } else if constexpr (mixed) {
#pragma unroll
    for (unsigned e = 0; e < Config::run; ++e) {
      if (Place::column(e) < columns) out[Place::column(e)] = Element(values[e]);
    }
  } else {
    std::uint32_t words[4];
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) {
      words[w] = kit::packed(values[2 * w], values[2 * w + 1], Element());
    }
    if constexpr (Config::wide) {
      if (Place::column(0) >= columns) return;
      *reinterpret_cast<uint4*>(out + Place::column(0)) =
          make_uint4(words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
      for (unsigned w = 0; w < 4; ++w) {
        if (Place::column(2 * w) >= columns) continue;
        *reinterpret_cast<std::uint32_t*>(out + Place::column(2 * w)) = words[w];
      }
    }
  }
}

// The biases of a lane's run; zeros if there are none. `first` is the first of its 32 columns.
template <class Config, bool mixed>
__device__ void load_biases(float (&to)[Config::run],
                            const Operands<typename Config::Element>& operands, unsigned slot,
                            unsigned first, unsigned half = 0) {
#pragma unroll
  for (unsigned e = 0; e < Config::run; ++e) {
    const unsigned column = first + Place<Config, mixed>::column(e);
    to[e] = 0;
    if (operands.bias == nullptr || column >= operands.columns) continue;
    const unsigned row = Config::up ? gate_up_row(operands, half, column) : column;
    to[e] = static_cast<float>(operands.bias[slot * operands.bias_slot + row]);
  }
}

// Calls body(group, r, row) for the lane's rows of the item. `row` counts from the item's first.
template <class Config, class Body>
__device__ void each_row(const MoeItem& item, const Body& body) {
#pragma unroll
  for (unsigned group = 0; group < groups; ++group) {
    if (group * group_rows >= item.rows) break;
#pragma unroll
    for (unsigned r = 0; r < Product<Config>::rows; ++r) {
      const unsigned row = Product<Config>::row(group, r);
      if (row < item.rows) body(group, r, row);
    }
  }
}

// Replaces sums of gate by act(gate, up). The activation is a constant in each of the loops.
template <class Config, bool mixed>
__device__ void activate(Product<Config>& product,
                         const Operands<typename Config::Element>& operands, const MoeItem& item,
                         unsigned first) {
  using Place = Place<Config, mixed>;
  float gate_bias[Config::run], up_bias[Config::run];
  load_biases<Config, mixed>(gate_bias, operands, item.slot, first, 0);
  load_biases<Config, mixed>(up_bias, operands, item.slot, first, 1);
  const auto all = [&](MoeActivation activation) {
    const MoeGate act{activation, operands.gate.alpha, operands.gate.limit};
    each_row<Config>(item, [&](unsigned group, unsigned r, unsigned) {
#pragma unroll
      for (unsigned e = 0; e < Config::run; ++e) {
        const auto gate = Place::sum(0, e, 0), up = Place::sum(0, e, 1);
        float& sum = product.at(group, r, gate.f, gate.p);
        sum = activated<Config::bytes == 4>(act, sum + gate_bias[e],
                                            product.at(group, r, up.f, up.p) + up_bias[e]);
      }
    });
  };
  switch (operands.gate.activation) {
    case MoeActivation::swiglu:
      return all(MoeActivation::swiglu);
    case MoeActivation::geglu:
      return all(MoeActivation::geglu);
    case MoeActivation::geglu_tanh:
      return all(MoeActivation::geglu_tanh);
    case MoeActivation::clamped_swiglu:
      return all(MoeActivation::clamped_swiglu);
  }
}

template <class Config, bool mixed>
__device__ void store_columns(Product<Config>& product,
                              const Operands<typename Config::Element>& operands,
                              const MoeItem& item) {
#pragma unroll
  for (unsigned g = 0; g < Config::runs; ++g) {
    const unsigned first =
        item.column * Config::out_columns + warp_column() * Config::warp_out_columns + 32 * g;
    if (first >= operands.columns) break;
    float bias[Config::run] = {};
    if constexpr (Config::up) {
      activate<Config, mixed>(product, operands, item, first);
    } else {
      load_biases<Config, mixed>(bias, operands, item.slot, first);
    }
    each_row<Config>(item, [&](unsigned group, unsigned r, unsigned row) {
      float values[Config::run];
#pragma unroll
      for (unsigned e = 0; e < Config::run; ++e) {
        const auto at = Place<Config, mixed>::sum(g, e);
        values[e] = product.at(group, r, at.f, at.p) + bias[e];
      }
      store_run<Config, mixed>(
          operands.out + static_cast<std::int64_t>(item.first + row) * operands.columns + first,
          operands.columns - first, values);
    });
  }
}

template <class Config>
__device__ void store(Product<Config>& product, const Operands<typename Config::Element>& operands,
                      const MoeItem& item) {
  if constexpr (Config::up && Config::major == kit::Major::mn) {
    if (operands.interleaved) return store_columns<Config, true>(product, operands, item);
  }
  store_columns<Config, false>(product, operands, item);
}

}  // namespace ps::detail::moe_portable
