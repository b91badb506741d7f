// The products and the softmax of the decode kernels. Every warp has 16 rows of a tile and some of
// the keys of each block, and softmax and sums of its own; the warps of a block of threads meet
// only at the end of a run. The products are mma.sync: 16 rows are enough for the query heads that
// usually share a head of k, whereas wgmma always multiplies 64.
#pragma once

#include <cstdint>

#include "ops/attention/append_decode.cuh"
#include "ops/attention/decode_call.cuh"
#include "penstock/kit/fence.cuh"

namespace ps::detail::decoding {

using portable_attention::exp2_approximate;
using portable_attention::RowScale;

// Head dimensions are rounded up to those of a kernel. A block of keys has one slice of 16 per
// warp.
template <class Element_, unsigned dim_, unsigned dim_v_, unsigned keys_, unsigned stages_>
struct DecodeConfig {
  using Element = Element_;
  static constexpr unsigned dim = dim_, dim_v = dim_v_, keys = keys_, stages = stages_;
  static constexpr unsigned warps = keys / 16;
  static constexpr unsigned threads = warps * kit::warp_threads;  // that multiply
  static_assert(warps >= 4, "a tile has up to 4 times 16 rows, each of another warp");

  using K = portable_attention::RowTile<Element, keys, dim>;
  using V = portable_attention::RowTile<Element, keys, dim_v>;

  // Shared storage of one block of keys and values.
  struct Stage {
    alignas(1024) unsigned char k[K::bytes];
    alignas(1024) unsigned char v[V::bytes];
  };
};

// Shared storage in which the warps add up their sums, 32 columns at a time.
template <class C>
struct Meeting {
  static constexpr unsigned columns = 32;
  float2 stats[C::warps][16];          // {maximum, sum} of a warp's rows
  float2 rows[attention_decode_rows];  // {maximum, factor} of the tile's rows
  float sums[C::warps][16][columns + 4];
};

// One warp's part of the runs of a block of threads.
template <class C, class Call>
class DecodeTile {
  using Element = typename C::Element;

 public:
  __device__ DecodeTile(const Call& decode, Meeting<C>& meeting, unsigned warp)
      : decode_(decode), meeting_(meeting), warp_(warp) {}

  // Steps are those of one run. Called by all warps that multiply.
  __device__ void begin(const DecodeStep& step) {
    tiles_ = static_cast<unsigned>(step.sequence.row_tiles);
    const std::int32_t all = step.sequence.at.q_length * decode_.shape.group;
    rows_ = min(step.sequence.tile_rows(), all - first_row(step));
    const std::int32_t row =
        first_row(step) + static_cast<std::int32_t>(warp_ % tiles_ * 16 + kit::lane_index() / 4);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = min(row + 8 * r, all - 1);  // what other rows compute is not stored
      const ResultRow own(decode_, step.sequence.at, step.run.sequence, step.run.head, at);
      keys_[r] = attention_keys(own.query, step.sequence.at.q_length, step.sequence.at.k_length,
                                decode_.shape.reach);
      if (!rotates()) load_queries(step, own, r);
    }
    if constexpr (Call::appends) {
      if (rotates()) rotate_queries(step);
    }
    softmax_ = {};
#pragma unroll
    for (auto& four : sums_) {
#pragma unroll
      for (float& each : four) each = 0.F;
    }
  }

  // Adds this warp's keys of a block.
  __device__ void add(const typename C::Stage& stage, const DecodeStep& step) {
    if (static_cast<std::int32_t>(warp_ % tiles_ * 16) >= rows_) return;
    const std::int32_t begin = step.first_key(C::keys), count = step.sequence.at.k_length;
    for (unsigned slice = warp_ / tiles_; slice < C::keys / 16; slice += C::warps / tiles_) {
      const std::int32_t first = begin + static_cast<std::int32_t>(16 * slice);
      if (first + 16 <= 0 || first >= count) continue;
      add_slice(stage, slice, first, count);
    }
  }

  // Adds up what the warps have, and stores it as a result or for the combination. Called by all
  // warps that multiply.
  __device__ void finish(std::int32_t part, const DecodeStep& step) {
    softmax_.finish();
    const unsigned lane = kit::lane_index(), row = lane / 4;
    const float factor = decode_.call.scores.scaled_first ? 1.F : decode_.call.scores.factor;
    if (lane % 4 == 0) {
#pragma unroll
      for (unsigned r = 0; r < 2; ++r) {
        meeting_.stats[warp_][row + 8 * r] = {softmax_.maximum[r] * factor, softmax_.sum[r]};
      }
    }
    meet();
    const unsigned thread = warp_ * kit::warp_threads + lane;
    if (thread < static_cast<unsigned>(rows_)) meeting_.rows[thread] = scale_of(part, step, thread);
    meet();
    float scale[2];
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
      const unsigned at = warp_ % tiles_ * 16 + row + 8 * r;
      const float own = softmax_.maximum[r] * factor;
      // Rows that are not there have no maximum.
      const bool none = own == -INFINITY || at >= static_cast<unsigned>(rows_);
      scale[r] = none ? 0.F : exp2_approximate(own - meeting_.rows[at].x);
    }
    constexpr unsigned wide = Meeting<C>::columns;
#pragma unroll
    for (unsigned begin = 0; begin < C::dim_v; begin += wide) {
#pragma unroll
      for (unsigned r = 0; r < 2; ++r) {
        float* const to = meeting_.sums[warp_][row + 8 * r] + lane % 4 * 2;
#pragma unroll
        for (unsigned j = 0; j < wide / 8; ++j) {
          const float (&from)[4] = sums_[begin / 8 + j];
          // Without a key, sums may be NaN: weights of 0 times infinite values.
          const bool none = scale[r] == 0.F;
          to[8 * j] = none ? 0.F : from[2 * r] * scale[r];
          to[8 * j + 1] = none ? 0.F : from[2 * r + 1] * scale[r];
        }
      }
      meet();
      store(part, step, begin + lane);
      meet();
    }
  }

 private:
  // Of the tile, among the rows of its item's sequence and head.
  __device__ static std::int32_t first_row(const DecodeStep& step) {
    return step.run.tile * step.sequence.tile_rows();
  }

  __device__ static void meet() { kit::named_barrier_wait(1, C::threads); }

  __device__ bool rotates() const {
    if constexpr (Call::appends) {
      return decode_.append.rotated > 0;
    } else {
      return false;
    }
  }

  // Row r of this lane, in the layout of mma.sync.
  __device__ void load_queries(const DecodeStep& step, const ResultRow& row, int r) {
    const portable_attention::Call& call = decode_.call;
    const Element* const from =
        static_cast<const Element*>(call.q) +
        call.q_strides.at(step.run.sequence, step.sequence.at.q_begin + row.query, row.head);
#pragma unroll
    for (unsigned slice = 0; slice < C::dim / 16; ++slice) {
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned column = 16 * slice + 8 * half + kit::lane_index() % 4 * 2;
        std::uint32_t& to = queries_[slice][static_cast<unsigned>(r) + 2 * half];
        to = column < call.dim ? *reinterpret_cast<const std::uint32_t*>(from + column) : 0;
      }
    }
  }

  // The same for all rows, which all threads rotate in the memory in which sums meet, 16 rows at a
  // time.
  __device__ void rotate_queries(const DecodeStep& step) {
    constexpr unsigned stride = C::dim + 8;  // of a row, so that lanes read from different banks
    static_assert(16 * stride * sizeof(Element) <= sizeof(meeting_.sums));
    auto* const shared = reinterpret_cast<Element*>(meeting_.sums);
    const auto rows = static_cast<unsigned>(rows_);
    const unsigned pairs = decode_.call.dim / 2;
    for (unsigned tile = 0; 16 * tile < rows; ++tile) {
      const unsigned here = min(rows - 16 * tile, 16U);
      meet();  // nobody reads the rows before
      for (unsigned i = warp_ * kit::warp_threads + kit::lane_index(); i < here * pairs;
           i += C::threads) {
        const ResultRow own = result_of(step, 16 * tile + i / pairs);
        const Element* const from =
            static_cast<const Element*>(decode_.call.q) +
            decode_.call.q_strides.at(step.run.sequence, step.sequence.at.q_begin + own.query,
                                      own.head);
        rotated_pair(decode_.append, from, decode_.append.position(step.run.sequence, own.query),
                     i % pairs)
            .store(shared + i / pairs * stride);
      }
      meet();
      if (warp_ % tiles_ == tile) read_queries(shared, stride, here);
    }
  }

  // This lane's rows of `rows` rows, in the layout of mma.sync.
  __device__ void read_queries(const Element* from, unsigned stride, unsigned rows) {
#pragma unroll
    for (unsigned i = 0; i < C::dim / 4; ++i) {
      const unsigned slice = i / 4, row = min(kit::lane_index() / 4 + i % 2 * 8, rows - 1);
      const unsigned column = 16 * slice + i % 4 / 2 * 8 + kit::lane_index() % 4 * 2;
      const bool there = column < decode_.call.dim;
      queries_[slice][i % 4] =
          there ? *reinterpret_cast<const std::uint32_t*>(from + row * stride + column) : 0;
    }
  }

  __device__ void add_slice(const typename C::Stage& stage, unsigned slice, std::int32_t first,
                            std::int32_t count) {
    const typename C::K::Address k_at;
    const typename C::V::Address v_at;
    float s[1][2][4] = {};
#pragma unroll
    for (unsigned i = 0; i < C::dim / 16; ++i) {
      std::uint32_t b[4];
      kit::load_matrices(b, stage.k + k_at(slice, i));
      kit::mma<Element>(s[0][0], queries_[i], {b[0], b[2]});
      kit::mma<Element>(s[0][1], queries_[i], {b[1], b[3]});
    }
    if (decode_.call.scores.scaled_first) {
#pragma unroll
      for (unsigned i = 0; i < 8; ++i) s[0][i / 4][i % 4] = score_of(s[0][i / 4][i % 4]);
    }
    const std::int32_t own = first + static_cast<std::int32_t>(kit::lane_index() % 4 * 2);
    std::uint32_t there[2] = {};  // masks of values: what is beyond the sequence may be NaN
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const std::int32_t key = own + 8 * half + e;
        if (key >= 0 && key < count) there[half] |= e == 0 ? 0xffffU : 0xffff0000U;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          if (key < keys_[r].begin || key >= keys_[r].end) s[0][half][2 * r + e] = -INFINITY;
        }
      }
    }
    float factors[2];
    softmax_.add(s, decode_.call.scores, factors);
    if (__any_sync(~0U, factors[0] != 1.F || factors[1] != 1.F)) {
#pragma unroll
      for (auto& four : sums_) {
#pragma unroll
        for (unsigned e = 0; e < 4; ++e) four[e] *= factors[e / 2];
      }
    }
    const std::uint32_t p[4] = {kit::packed(s[0][0][0], s[0][0][1], Element{}),
                                kit::packed(s[0][0][2], s[0][0][3], Element{}),
                                kit::packed(s[0][1][0], s[0][1][1], Element{}),
                                kit::packed(s[0][1][2], s[0][1][3], Element{})};
#pragma unroll
    for (unsigned j = 0; j < C::dim_v / 16; ++j) {
      std::uint32_t b[4];
      kit::load_matrices<true>(b, stage.v + v_at(slice, j));
      kit::mma<Element>(sums_[2 * j], p, {b[0] & there[0], b[1] & there[1]});
      kit::mma<Element>(sums_[2 * j + 1], p, {b[2] & there[0], b[3] & there[1]});
    }
  }

  // With a softcap, or a factor that is not above 0. The instruction tanh.approx has an error of
  // 5e-4, which a softcap multiplies, so tanh is computed from its definition.
  __device__ float score_of(float product) const {
    const portable_attention::Scores& scores = decode_.call.scores;
    if (!scores.capped) return scores.factor * product;
    const float power = exp2_approximate(2.F * 1.44269504F * scores.inner * product);
    return scores.outer * (1.F - __fdividef(2.F, 1.F + power));
  }

  // {maximum, factor} of a row of the tile over all warps; stores its lse or its stats.
  __device__ float2 scale_of(std::int32_t part, const DecodeStep& step, unsigned row) const {
    float most = -INFINITY, sum = 0.F;
    for (unsigned warp = row / 16; warp < C::warps; warp += tiles_) {
      most = fmaxf(most, meeting_.stats[warp][row % 16].x);
    }
    const float base = most == -INFINITY ? 0.F : most;  // a sum of NaN stays NaN
    for (unsigned warp = row / 16; warp < C::warps; warp += tiles_) {
      const float2 own = meeting_.stats[warp][row % 16];
      sum += own.y * exp2_approximate(own.x - base);
    }
    const ResultRow result = result_of(step, row);
    if (!step.run.is_whole()) {
      decode_.partials.stats[partial_of(part, step, row, result)] = {most, sum};
      return {most, 1.F};
    }
    const RowScale scale(decode_.call, result.head, most, sum);
    if (decode_.call.lse != nullptr) decode_.call.lse[result.number] = scale.lse;
    return {most, scale.factor};
  }

  // One column of the rows that this warp stores.
  __device__ void store(std::int32_t part, const DecodeStep& step, unsigned column) const {
    if (column >= decode_.call.dim_v) return;
    const portable_attention::Call& call = decode_.call;
    for (unsigned row = warp_; row < static_cast<unsigned>(rows_); row += C::warps) {
      float sum = 0.F;
      for (unsigned warp = row / 16; warp < C::warps; warp += tiles_) {
        sum += meeting_.sums[warp][row % 16][column % Meeting<C>::columns];
      }
      const ResultRow result = result_of(step, row);
      if (!step.run.is_whole()) {
        decode_.partials.sums[partial_of(part, step, row, result) * call.dim_v + column] = sum;
        continue;
      }
      auto* const out = static_cast<Element*>(call.out) +
                        call.out_strides.at(step.run.sequence,
                                            step.sequence.at.q_begin + result.query, result.head);
      out[column] = static_cast<Element>(sum * meeting_.rows[row].y);
    }
  }

  __device__ ResultRow result_of(const DecodeStep& step, unsigned row) const {
    return {decode_, step.sequence.at, step.run.sequence, step.run.head,
            first_row(step) + static_cast<std::int32_t>(row)};
  }

  __device__ std::int64_t partial_of(std::int32_t part, const DecodeStep& step, unsigned row,
                                     const ResultRow& result) const {
    const Partials& partials = decode_.partials;
    if (partials.chunks > 0) return result.number * partials.chunks + step.run.piece;
    return std::int64_t{decode_slot(part, step.run.is_first)} * partials.tile_rows + row;
  }

  const Call& decode_;
  Meeting<C>& meeting_;
  unsigned warp_;

  std::int32_t rows_ = 0;  // of the tile
  unsigned tiles_ = 1;
  AttentionKeys keys_[2];  // of this lane's rows

  std::uint32_t queries_[C::dim / 16][4];
  portable_attention::Softmax<1, 2> softmax_;
  float sums_[C::dim_v / 8][4];
};

}  // namespace ps::detail::decoding
