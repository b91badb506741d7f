// The way out of the attention kernels on Hopper: divides the sums, and stores rows and their lse.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/attention/sm90_config.cuh"
#include "ops/attention/sm90_softmax.cuh"
#include "penstock/kit/wgmma.cuh"

namespace ps::detail {

template <class Config>
class AttentionResult {
  using Element = typename Config::Element;
  using Sums = float[Config::dim_v / 2];

 public:
  // `row` is the consumer's first row in a tile.
  __device__ AttentionResult(typename Config::Store::Shared& shared,
                             const AttentionArguments& arguments, unsigned row)
      : pieces_(shared), arguments_(arguments), row_(row) {}

  // `softmax` is that of the whole tile, before finish().
  __device__ __forceinline__ void store(Sums& o, AttentionSoftmax softmax,
                                        const AttentionTile& tile) {
    softmax.finish();
    float inverse[2], lse[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      divide(softmax.maximum(r), softmax.sum(r), tile, inverse[r], lse[r]);
    scale_rows(o, inverse);
    clear_rows_without_keys(o, softmax);
    store_lse(lse, tile);

    const int first = static_cast<int>(row_ + pieces_.first_row());
    const int valid = tile.rows - first;  // rows of this warp
    if (valid >= 16 || (!Config::general && valid > 0)) {
      // Without `general`, rows behind the sequence are outside the tensor and not stored.
#pragma unroll
      for (unsigned x = 0; x < Config::pieces; ++x) {
        pieces_.put([&](unsigned i, std::uint32_t (&to)[4]) { pack(o, 64 * x + 16 * i, to); },
                    [&](const void* piece) {
                      kit::tensor_store(arguments_.out, piece, kit::evict_first(), tile.sequence,
                                        tile.head, tile.row + first, 64 * x);
                    });
      }
    } else if (Config::general && valid > 0) {
      store_rows(o, tile);
    }
    __syncwarp();  // products and barriers need the whole warp
  }

  // Waits until stores have read shared memory.
  __device__ void finish() { pieces_.finish(); }

 private:
  // The factor of a row of sums, and the row's lse.
  __device__ void divide(float maximum, float sum, const AttentionTile& tile, float& inverse,
                         float& lse) const {
    const float scale = arguments_.scale;
    float highest = maximum * scale, shrink = 1.f;
    if (Config::general && arguments_.sinks != nullptr && sum != 0.f) {
      // One more key. Its score may be far above or below the others.
      const float sink = sink_of(tile.head) * log2_e;
      const float all = fmaxf(highest, sink);
      shrink = exp2_approximate(highest - all);
      sum = sum * shrink + exp2_approximate(sink - all);
      highest = all;
    }
    inverse = shrink / sum;
    lse = (highest + __log2f(sum)) * (1.f / log2_e);
  }

  // Their sums may be NaN: probabilities of 0 times infinite values.
  __device__ static void clear_rows_without_keys(Sums& o, const AttentionSoftmax& softmax) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (softmax.sum(r) != 0.f) continue;
#pragma unroll
      for (unsigned i = 0; i < Config::dim_v / 2; ++i) {
        if (i % 4 / 2 == r) o[i] = 0.f;
      }
    }
  }

  __device__ void store_lse(const float (&lse)[2], const AttentionTile& tile) const {
    if (arguments_.lse == nullptr || kit::lane_index() % 4 != 0) return;
    const auto at = arguments_.lse_strides.at(tile.sequence, tile.row, tile.head);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = static_cast<int>(row_ + kit::accumulator_row(2 * r));
      if (row < tile.rows) arguments_.lse[at + row * arguments_.lse_strides.row] = lse[r];
    }
  }

  // Pairs of columns from registers. For the few warps with rows behind a sequence, where the next
  // one may follow.
  __device__ __forceinline__ void store_rows(const Sums& o, const AttentionTile& tile) const {
    auto* const out = static_cast<Element*>(arguments_.out_data) +
                      arguments_.out_strides.at(tile.sequence, tile.row, tile.head);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = static_cast<int>(row_ + kit::accumulator_row(2 * r));
      if (row >= tile.rows) continue;
      Element* const to = out + row * arguments_.out_strides.row + kit::lane_index() % 4 * 2;
#pragma unroll
      for (unsigned i = 2 * r; i < Config::dim_v / 2; i += 4) {
        *reinterpret_cast<std::uint32_t*>(to + i / 4 * 8) = kit::packed(o[i], o[i + 1], Element());
      }
    }
  }

  // Columns beyond the head dimension are outside the tensor.
  __device__ static void pack(const Sums& o, unsigned column, std::uint32_t (&to)[4]) {
    if (column < Config::dim_v) {
      kit::pack_pairs<Element>(o + column / 2, to);
    } else {
#pragma unroll
      for (std::uint32_t& pair : to) pair = 0;
    }
  }

  __device__ float sink_of(int head) const {
    switch (arguments_.sink_type) {
      case DType::bf16:
        return __bfloat162float(static_cast<const __nv_bfloat16*>(arguments_.sinks)[head]);
      case DType::f16:
        return __half2float(static_cast<const __half*>(arguments_.sinks)[head]);
      default:
        return static_cast<const float*>(arguments_.sinks)[head];
    }
  }

  static constexpr float log2_e = 1.4426950408889634f;

  typename Config::Store pieces_;
  const AttentionArguments& arguments_;
  unsigned row_;
};

}  // namespace ps::detail
