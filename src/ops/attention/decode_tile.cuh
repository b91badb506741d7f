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
using portable_attention::score_first;

// Head dimensions are rounded up to those of a kernel. A block of keys has slices of 16, each of
// which is multiplied by one warp per 16 rows of a tile.
template <class Element_, unsigned dim_, unsigned dim_v_, unsigned keys_, unsigned stages_>
struct DecodeConfig {
  using Element = Element_;
  static constexpr unsigned dim = dim_, dim_v = dim_v_, keys = keys_, stages = stages_;
  static constexpr unsigned slices = keys / 16;
  static constexpr unsigned warps = 4;  // as many as a tile has 16 rows at most
  static constexpr unsigned threads = warps * kit::warp_threads;  // that multiply
  static_assert(keys % 16 == 0 && 16 * warps == attention_decode_rows);
  static_assert(keys <= attention_rows_behind, "the last block begins inside the sequence");

  using K = portable_attention::RowTile<Element, keys, dim>;
  using V = portable_attention::RowTile<Element, keys, dim_v>;

  // Shared storage of one block of keys and values.
  struct Stage {
    alignas(1024) unsigned char k[K::bytes];
    alignas(1024) unsigned char v[V::bytes];
  };
};

// Shared storage in which the warps add up their sums, some columns at a time: 32 of 16 rows, or
// more of fewer rows.
template <class C>
struct Meeting {
  float2 stats[C::warps][16];          // {maximum, sum} of a warp's rows
  float2 rows[attention_decode_rows];  // {maximum, factor} of the tile's rows
  float sums[C::warps][16 * (32 + 4)];
};

// One warp's part of the runs of a block of threads.
template <class C, class Call>
class DecodeTile {
  using Element = typename C::Element;

 public:
  __device__ DecodeTile(const Call& decode, Meeting<C>& meeting, unsigned warp)
      : decode_(decode), meeting_(meeting), warp_(warp) {}

  // Steps are those of one run. Called by all warps that multiply.
  __device__ void begin(const SequenceRun& of) {
    const unsigned tiles = row_tiles(of);
    const bool has_rows = 16 * row_tile(of) < rows(of);
    first_slice_ = has_rows ? warp_ / tiles : C::slices;
    slice_step_ = C::warps / tiles;
    const std::int32_t all = of.sequence.at.q_length * decode_.shape.group;
    const std::int32_t row =
        first_row(of) + static_cast<std::int32_t>(16 * row_tile(of) + kit::lane_index() / 4);
    AttentionKeys keys[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = min(row + 8 * r, all - 1);  // what other rows compute is not stored
      const ResultRow own(decode_, of.sequence.at, of.run.sequence, of.run.head, at);
      query_[r] = own.query;
      keys[r] = keys_of(of, own.query);
      if (!rotates()) load_queries(of, own, r);
    }
    whole_ = {__reduce_max_sync(~0U, max(keys[0].begin, keys[1].begin)),
              __reduce_min_sync(~0U, min(keys[0].end, keys[1].end))};
    if constexpr (Call::appends) {
      if (rotates()) rotate_queries(of);
    }
    softmax_ = {};
#pragma unroll
    for (auto& four : sums_) {
#pragma unroll
      for (float& each : four) each = 0.F;
    }
  }

  // Adds this warp's keys of a block.
  __device__ void add(const typename C::Stage& stage, const SequenceRun& of, std::int32_t block) {
    const std::int32_t begin = of.first_key(block, C::keys);
    for (unsigned slice = first_slice_; slice < C::slices; slice += slice_step_) {
      const std::int32_t first = begin + static_cast<std::int32_t>(16 * slice);
      if (first >= whole_.begin && first + 16 <= whole_.end) {
        add_slice<false>(stage, of, slice, first);
      } else if (first + 16 > 0 && first < of.sequence.at.k_length) {
        add_slice<true>(stage, of, slice, first);
      }
    }
  }

  // Adds up what the warps have, and stores it as a result or for the combination. Called by all
  // warps that multiply.
  __device__ void finish(std::int32_t part, const SequenceRun& of) {
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
    const unsigned count = rows(of), thread = warp_ * kit::warp_threads + lane;
    if (thread < count) meeting_.rows[thread] = scale_of(part, of, thread);
    float scale[2];
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
      const unsigned at = 16 * row_tile(of) + row + 8 * r;
      const float own = softmax_.maximum[r] * factor;
      // Rows that are not there have no maximum.
      const bool none = own == -INFINITY || at >= count;
      scale[r] = none ? 0.F : exp2_approximate(own - maximum_of(of, at));
    }
    // Groups of 32 columns that meet at once.
    const unsigned at_once = count > 8 ? 1 : count > 4 ? 2 : 4, stride = 32 * at_once + 4;
    constexpr unsigned groups = C::dim_v / 32;
#pragma unroll
    for (unsigned group = 0; group < groups; ++group) {
      const unsigned place = group % at_once;
#pragma unroll
      for (unsigned r = 0; r < 2; ++r) {
        if ((row + 8 * r) * at_once >= 16) continue;
        float* const to = meeting_.sums[warp_] + (row + 8 * r) * stride + 32 * place + lane % 4 * 2;
#pragma unroll
        for (unsigned j = 0; j < 4; ++j) {
          const float (&from)[4] = sums_[4 * group + j];
          // Without a key, sums may be NaN: weights of 0 times infinite values.
          const bool none = scale[r] == 0.F;
          to[8 * j] = none ? 0.F : from[2 * r] * scale[r];
          to[8 * j + 1] = none ? 0.F : from[2 * r + 1] * scale[r];
        }
      }
      if (place + 1 < at_once && group + 1 < groups) continue;
      meet();
      store(part, of, 32 * (group - place), 32 * (place + 1), stride);
      if (group + 1 < groups) meet();
    }
  }

 private:
  // Of the tile, among the rows of its item's sequence and head.
  __device__ static std::int32_t first_row(const SequenceRun& of) {
    return of.sequence.first_row(of.run.tile);
  }

  __device__ static unsigned row_tiles(const SequenceRun& of) {
    return static_cast<unsigned>(of.sequence.row_tiles);
  }
  // The rows of this warp are the 16 of this number, of the tile.
  __device__ unsigned row_tile(const SequenceRun& of) const { return warp_ % row_tiles(of); }
  // Rows of the tile that are there.
  __device__ unsigned rows(const SequenceRun& of) const {
    return static_cast<unsigned>(of.sequence.rows_of(of.run.tile, decode_.shape.group));
  }

  __device__ AttentionKeys keys_of(const SequenceRun& of, std::int32_t query) const {
    return attention_keys(query, of.sequence.at.q_length, of.sequence.at.k_length,
                          decode_.shape.reach);
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
  __device__ void load_queries(const SequenceRun& of, const ResultRow& row, int r) {
    const portable_attention::Call& call = decode_.call;
    const Element* const from =
        static_cast<const Element*>(call.q) +
        call.q_strides.at(of.run.sequence, of.sequence.at.q_begin + row.query, row.head);
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
  __device__ void rotate_queries(const SequenceRun& of) {
    constexpr unsigned stride = C::dim + 8;  // of a row, so that lanes read from different banks
    static_assert(16 * stride * sizeof(Element) <= sizeof(meeting_.sums));
    auto* const shared = reinterpret_cast<Element*>(meeting_.sums);
    const unsigned rows = this->rows(of);
    const unsigned pairs = decode_.call.dim / 2;
    for (unsigned tile = 0; 16 * tile < rows; ++tile) {
      const unsigned here = min(rows - 16 * tile, 16U);
      meet();  // nobody reads the rows before
      for (unsigned i = warp_ * kit::warp_threads + kit::lane_index(); i < here * pairs;
           i += C::threads) {
        const ResultRow own = result_of(of, 16 * tile + i / pairs);
        const Element* const from =
            static_cast<const Element*>(decode_.call.q) +
            decode_.call.q_strides.at(of.run.sequence, of.sequence.at.q_begin + own.query,
                                      own.head);
        rotated_pair(decode_.append, from, decode_.append.position(of.run.sequence, own.query),
                     i % pairs)
            .store(shared + i / pairs * stride);
      }
      meet();
      if (row_tile(of) == tile) read_queries(shared, stride, here);
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

  // Without a mask, all rows of the warp attend to all keys of the slice.
  template <bool masked>
  __device__ void add_slice(const typename C::Stage& stage, const SequenceRun& of, unsigned slice,
                            std::int32_t first) {
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
    if (decode_.call.scores.scaled_first) score_first(s, decode_.call.scores);
    std::uint32_t there[2] = {};  // masks of values: what is beyond the sequence may be NaN
    if constexpr (masked) {
      const std::int32_t own = first + static_cast<std::int32_t>(kit::lane_index() % 4 * 2);
      const std::int32_t count = of.sequence.at.k_length;
      const AttentionKeys keys[2] = {keys_of(of, query_[0]), keys_of(of, query_[1])};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const std::int32_t key = own + 8 * half + e;
          if (key >= 0 && key < count) there[half] |= e == 0 ? 0xffffU : 0xffff0000U;
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            if (key < keys[r].begin || key >= keys[r].end) s[0][half][2 * r + e] = -INFINITY;
          }
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
      if constexpr (masked) {
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) b[i] &= there[i % 2];
      }
      kit::mma<Element>(sums_[2 * j], p, {b[0], b[1]});
      kit::mma<Element>(sums_[2 * j + 1], p, {b[2], b[3]});
    }
  }

  // Of a row of the tile, over all warps.
  __device__ float maximum_of(const SequenceRun& of, unsigned row) const {
    float most = -INFINITY;
    for (unsigned warp = row / 16; warp < C::warps; warp += row_tiles(of)) {
      most = fmaxf(most, meeting_.stats[warp][row % 16].x);
    }
    return most;
  }

  // {maximum, factor} of a row of the tile over all warps; stores its lse or its stats.
  __device__ float2 scale_of(std::int32_t part, const SequenceRun& of, unsigned row) const {
    const float most = maximum_of(of, row);
    float sum = 0.F;
    const float base = most == -INFINITY ? 0.F : most;  // a sum of NaN stays NaN
    for (unsigned warp = row / 16; warp < C::warps; warp += row_tiles(of)) {
      const float2 own = meeting_.stats[warp][row % 16];
      sum += own.y * exp2_approximate(own.x - base);
    }
    const ResultRow result = result_of(of, row);
    if (!of.run.is_whole()) {
      decode_.partials.stats[partial_of(part, of, row, result)] = {most, sum};
      return {most, 1.F};
    }
    const RowScale scale(decode_.call, result.head, most, sum);
    if (decode_.call.lse != nullptr) decode_.call.lse[result.number] = scale.lse;
    return {most, scale.factor};
  }

  // `columns` columns from `first` on of the rows that this warp stores. They met with a `stride`
  // between rows.
  __device__ void store(std::int32_t part, const SequenceRun& of, unsigned first, unsigned columns,
                        unsigned stride) const {
    const portable_attention::Call& call = decode_.call;
    const unsigned count = rows(of);
    for (unsigned row = warp_; row < count; row += C::warps) {
      const ResultRow result = result_of(of, row);
      auto* const out =
          static_cast<Element*>(call.out) +
          call.out_strides.at(of.run.sequence, of.sequence.at.q_begin + result.query, result.head);
      for (unsigned i = kit::lane_index(); i < columns && first + i < call.dim_v;
           i += kit::warp_threads) {
        float sum = 0.F;
        for (unsigned warp = row / 16; warp < C::warps; warp += row_tiles(of)) {
          sum += meeting_.sums[warp][row % 16 * stride + i];
        }
        if (of.run.is_whole()) {
          out[first + i] = static_cast<Element>(sum * meeting_.rows[row].y);
        } else {
          decode_.partials.sums[partial_of(part, of, row, result) * call.dim_v + first + i] = sum;
        }
      }
    }
  }

  __device__ ResultRow result_of(const SequenceRun& of, unsigned row) const {
    return {decode_, of.sequence.at, of.run.sequence, of.run.head,
            first_row(of) + static_cast<std::int32_t>(row)};
  }

  __device__ std::int64_t partial_of(std::int32_t part, const SequenceRun& of, unsigned row,
                                     const ResultRow& result) const {
    return decode_.partials.rows.of_run(part, of.run, static_cast<std::int32_t>(row),
                                        result.number);
  }

  const Call& decode_;
  Meeting<C>& meeting_;
  unsigned warp_;

  unsigned first_slice_ = 0, slice_step_ = 1;  // of this warp's slices in a block
  std::int32_t query_[2];                      // of this lane's rows
  AttentionKeys whole_;                        // those that all rows of the warp attend to

  std::uint32_t queries_[C::dim / 16][4];
  portable_attention::Softmax<1, 2> softmax_;
  float sums_[C::dim_v / 8][4];
};

}  // namespace ps::detail::decoding
