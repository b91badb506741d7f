// The epilogues of the two grouped products of moe(): biases, activation, rounding, and stores of
// the rows that belong to a tile's expert. With `plain` there are no biases and the activation is
// SwiGLU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/moe/activation.cuh"
#include "ops/moe/sm90_columns.cuh"
#include "penstock/kit/gemm/parts.cuh"
#include "penstock/kit/piece_store.cuh"

namespace ps::detail {

// The biases of a product's columns.
template <class Element>
struct MoeBias {
  const Element* values;  // null: none
  std::int64_t slot;      // elements from one slot to the next
  unsigned columns;       // of h or y
  unsigned column;        // elements from one column to the next
  unsigned up;            // elements from the bias of gate to that of up
};

// The biases of the 64 columns that a warp stores next, in shared memory: registers are short while
// the sums of a tile are there.
class MoeBiasRow {
 public:
  struct Shared {
    float of[4][2][64];  // of each warp: y or gate, up
  };

  __device__ explicit MoeBiasRow(Shared& shared) : row_(shared.of[kit::warp_index() % 4]) {}

  // All threads of the warp call this, when none of them reads the biases before these any more.
  template <class Element>
  __device__ void load(const MoeBias<Element>& bias, unsigned group, unsigned first) {
#pragma unroll
    for (unsigned i = kit::lane_index(); i < 64; i += kit::warp_threads) {
      if (first + i >= bias.columns) break;  // not stored
      const Element* const at = bias.values + group * bias.slot + (first + i) * bias.column;
      row_[0][i] = static_cast<float>(at[0]);
      row_[1][i] = static_cast<float>(at[bias.up]);
    }
    __syncwarp();
  }
  __device__ float gate(unsigned i) const { return row_[0][i]; }
  __device__ float up(unsigned i) const { return row_[1][i]; }

 private:
  float (&row_)[2][64];
};

// What a plain product has instead.
struct MoeNoBias {
  struct Shared {};
  __device__ explicit MoeNoBias(Shared&) {}
};

// Stores the rows of a tile that belong to its expert, and none behind them.
template <class Element_, unsigned pieces, bool plain>
class MoeRowStore {
 public:
  using Element = Element_;
  using Pieces = kit::PieceStore<Element, pieces>;
  using Biases = std::conditional_t<plain, MoeNoBias, MoeBiasRow>;
  struct Shared : Pieces::Shared, Biases::Shared {};
  struct Arguments {
    kit::TensorMap out;  // kit::ragged_options() of h or y
    MoeBias<Element> bias;
    MoeGate gate;
  };

  __device__ static void prefetch_arguments(const Arguments& arguments) {
    kit::prefetch(arguments.out);
  }

  __device__ MoeRowStore(Shared& shared, const Arguments& arguments)
      : arguments_(arguments), biases_(shared), pieces_(shared) {}

  __device__ void finish() { pieces_.finish(); }

 protected:
  // As PieceStore::put(), for the warp's rows of the 64 from `row` on.
  template <class Pairs>
  __device__ void put(const kit::GemmTile& tile, unsigned row, unsigned column, kit::CacheHint hint,
                      const Pairs& pairs) {
    const unsigned first = row + pieces_.first_row();
    if (first >= tile.rows) return;
    const unsigned valid = min(tile.rows - first, Pieces::rows);
    if constexpr (!plain) {
      if (has_bias()) biases_.load(arguments_.bias, tile.group, column);
    }
    pieces_.put(pairs, [&](const void* piece) {
      kit::ragged_store(arguments_.out, piece, hint, tile.row + first, valid, column);
    });
    if constexpr (pieces == 1) pieces_.finish();  // one buffer: nothing goes on meanwhile
  }

  __device__ bool has_bias() const { return arguments_.bias.values != nullptr; }

  const Arguments& arguments_;
  Biases biases_;

 private:
  Pieces pieces_;
};

// gate = act(gate, up), with one branch for all values.
template <unsigned count>
__device__ inline void activate(const MoeGate& act, float (&gate)[count],
                                const float (&up)[count]) {
  const auto apply = [&](MoeActivation activation) {
    const MoeGate known{activation, act.alpha, act.limit};
#pragma unroll
    for (unsigned m = 0; m < count; ++m) gate[m] = activated<false>(known, gate[m], up[m]);
  };
  switch (act.activation) {
    case MoeActivation::swiglu:
      return apply(MoeActivation::swiglu);
    case MoeActivation::geglu:
      return apply(MoeActivation::geglu);
    case MoeActivation::geglu_tanh:
      return apply(MoeActivation::geglu_tanh);
    case MoeActivation::clamped_swiglu:
      return apply(MoeActivation::clamped_swiglu);
  }
}

// h = act(gate, up).
template <class Config, unsigned pieces, class Columns, bool plain>
class MoeUpStore : public MoeRowStore<typename Config::Element, pieces, plain> {
  using Base = MoeRowStore<typename Config::Element, pieces, plain>;

 public:
  using Base::Base;

  template <unsigned count>
  __device__ void store(const float (&d)[count], const kit::GemmTile& tile, unsigned row,
                        unsigned column) {
#pragma unroll
    for (unsigned p = 0; p < count / 64; ++p) {
      const unsigned first = (tile.column + column) / 2 + 64 * p;
      this->put(tile, row, first, kit::evict_normal(), [&](unsigned i, std::uint32_t (&to)[4]) {
        float values[8];
        // Four at a time, since registers are short.
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
          float gate[4], up[4];
#pragma unroll
          for (unsigned m = 0; m < 4; ++m) {
            const unsigned from = 64 * p + Columns::gate(i, 4 * half + m);
            gate[m] = d[from];
            up[m] = d[from + Columns::up_after];
          }
          if constexpr (!plain) add_bias(i, half, gate, up);
          activate(plain ? MoeGate{} : this->arguments_.gate, gate, up);
#pragma unroll
          for (unsigned m = 0; m < 4; ++m) values[4 * half + m] = gate[m];
        }
        Columns::template pack<typename Base::Element>(values, to);
      });
    }
  }

 private:
  __device__ void add_bias(unsigned i, unsigned half, float (&gate)[4], float (&up)[4]) {
    if (!this->has_bias()) return;
#pragma unroll
    for (unsigned m = 0; m < 4; ++m) {
      const unsigned column = 16 * i + Columns::column(4 * half + m);
      gate[m] += this->biases_.gate(column);
      up[m] += this->biases_.up(column);
    }
  }
};

// y, as it is, with the bias.
template <class Config, unsigned pieces, bool plain>
class MoeDownStore : public MoeRowStore<typename Config::Element, pieces, plain> {
  using Base = MoeRowStore<typename Config::Element, pieces, plain>;

 public:
  using Base::Base;

  template <unsigned count>
  __device__ void store(const float (&d)[count], const kit::GemmTile& tile, unsigned row,
                        unsigned column) {
#pragma unroll
    for (unsigned p = 0; p < count / 32; ++p) {
      const unsigned first = tile.column + column + 64 * p;
      this->put(tile, row, first, kit::evict_first(), [&](unsigned i, std::uint32_t (&to)[4]) {
        float values[8];
#pragma unroll
        for (unsigned m = 0; m < 8; ++m) values[m] = d[32 * p + 8 * i + m];
        if constexpr (!plain) add_bias(i, values);
        MoeColumnsInOrder::pack<typename Base::Element>(values, to);
      });
    }
  }

 private:
  __device__ void add_bias(unsigned i, float (&values)[8]) {
    if (!this->has_bias()) return;
#pragma unroll
    for (unsigned m = 0; m < 8; ++m) {
      values[m] += this->biases_.gate(16 * i + MoeColumnsInOrder::column(m));
    }
  }
};

}  // namespace ps::detail
