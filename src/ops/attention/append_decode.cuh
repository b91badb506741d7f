// New rows of keys and values in the decode kernels: the block of threads that is about to load the
// place of such a row writes it first. Blocks of threads that load the same place, for other
// queries, write the same bits, so that none of them waits for another one.
#pragma once

#include <cstdint>

#include "ops/append_kv/work.h"
#include "ops/attention/decode_call.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/warp.cuh"

namespace ps::detail::decoding {

struct AppendDecodeCall : DecodeCall {
  static constexpr bool appends = true;

  AppendWork append{};  // its q is not used
};

// Two elements of a head's row that are rotated together, or next to each other and not rotated.
template <class Element>
struct ElementPair {
  unsigned x_at, y_at;
  Element x, y;

  __device__ void store(Element* row) const {
    row[x_at] = x;
    row[y_at] = y;
  }
};

template <class Element>
__device__ inline ElementPair<Element> neighbours(const Element* row, unsigned pair) {
  return {2 * pair, 2 * pair + 1, row[2 * pair], row[2 * pair + 1]};
}

// Pair number `pair` of a row of q or k at a position of the tables.
template <class Element>
__device__ inline ElementPair<Element> rotated_pair(const AppendWork& work, const Element* row,
                                                    std::int64_t position, unsigned pair) {
  const unsigned rotated = static_cast<unsigned>(work.rotated) / 2;
  if (pair >= rotated) return neighbours(row, pair);
  const auto angle = [&](const void* table, std::int64_t stride) {
    const std::int64_t at = position * stride + pair;
    return work.table_type == DType::f32
               ? static_cast<const float*>(table)[at]
               : static_cast<float>(static_cast<const Element*>(table)[at]);
  };
  ElementPair<Element> found =
      work.pairs == RotaryPairs::halves
          ? ElementPair<Element>{pair, pair + rotated, row[pair], row[pair + rotated]}
          : neighbours(row, pair);
  const RotatedPair turned =
      rotate_pair(static_cast<float>(found.x), static_cast<float>(found.y),
                  angle(work.cos, work.cos_row), angle(work.sin, work.sin_row));
  found.x = static_cast<Element>(turned.x);
  found.y = static_cast<Element>(turned.y);
  return found;
}

// Some new rows of a sequence: numbers [first, behind).
struct NewRows {
  std::int64_t first, behind;
};

// Those with a place in blocks [begin, end) of a run. Rows that no query attends to have a place
// before or behind the blocks of their item: they belong to the first and the last one.
__device__ inline NewRows new_rows(const AppendDecodeCall& decode, const DecodeSequence& sequence,
                                   const DecodeRun& run, std::int32_t begin, std::int32_t end) {
  const AppendWork& work = decode.append;
  const std::int64_t count = work.new_rows_of(run.sequence), keys = decode.shape.keys;
  // The new row that is at the beginning of block 0, which may be before the first one.
  const std::int64_t origin =
      std::int64_t{sequence.at.k_begin} - sequence.shift - work.length_of(run.sequence);
  NewRows rows{0, count};
  if (!run.is_first || begin > run.begin) rows.first = max(rows.first, origin + begin * keys);
  if (!run.is_last || end < run.end) rows.behind = min(rows.behind, origin + end * keys);
  return rows;
}

// One head of a new row of K and V, in the registers of a warp.
template <class C>
class NewRow {
 public:
  using Element = typename C::Element;
  // Pairs of each lane, if the head dimensions are those of the kernel.
  static constexpr unsigned each =
      ((C::dim + C::dim_v) / 2 + kit::warp_threads - 1) / kit::warp_threads;

  __device__ void load(const AppendWork& work, std::int32_t sequence, std::int64_t number,
                       std::int32_t head) {
    const AppendPlace place = work.place(sequence, number);
    kept_ = place.kept;
    if (!kept_) return;
    const auto of = [&](const AppendRows& rows, std::int64_t batch, std::int64_t row) {
      return static_cast<Element*>(rows.data) + rows.at(batch, row) + head * rows.head;
    };
    k_cache_ = of(work.k_cache, place.page, place.slot);
    v_cache_ = of(work.v_cache, place.page, place.slot);
    const Element* const k = of(work.k, place.batch, place.row);
    const Element* const v = of(work.v, place.batch, place.row);
#pragma unroll
    for (unsigned i = 0; i < each; ++i) {
      const unsigned at = pair(i), of_k = pairs(work.dim);
      if (at < of_k) {
        pairs_[i] = rotated_pair(work, k, place.position, at);
      } else if (at < of_k + pairs(work.dim_v)) {
        pairs_[i] = neighbours(v, at - of_k);
      }
    }
  }

  __device__ void store(const AppendWork& work) const {
    if (!kept_) return;
#pragma unroll
    for (unsigned i = 0; i < each; ++i) {
      const unsigned at = pair(i), of_k = pairs(work.dim);
      if (at < of_k) {
        pairs_[i].store(k_cache_);
      } else if (at < of_k + pairs(work.dim_v)) {
        pairs_[i].store(v_cache_);
      }
    }
  }

 private:
  __device__ static unsigned pair(unsigned i) { return kit::lane_index() + i * kit::warp_threads; }
  __device__ static unsigned pairs(std::int32_t dim) { return static_cast<unsigned>(dim) / 2; }

  bool kept_;
  Element *k_cache_, *v_cache_;
  ElementPair<Element> pairs_[each];
};

// Writes one head of new rows. Called by `warps` warps, of which this is number `warp`; a warp
// loads `at_once` rows before it stores them.
template <class C, unsigned at_once, unsigned warps>
__device__ inline void write_rows(const AppendWork& work, const NewRows& rows,
                                  std::int32_t sequence, std::int32_t head, unsigned warp) {
  for (std::int64_t first = rows.first + warp * at_once; first < rows.behind;
       first += warps * at_once) {
    NewRow<C> loaded[at_once];
#pragma unroll
    for (unsigned i = 0; i < at_once; ++i) {
      if (first + i < rows.behind) loaded[i].load(work, sequence, first + i, head);
    }
#pragma unroll
    for (unsigned i = 0; i < at_once; ++i) {
      if (first + i < rows.behind) loaded[i].store(work);
    }
  }
}

// All new rows of a part, before any of its blocks is loaded. Called by all threads.
template <class C>
__device__ inline void append_rows_of_part(const AppendDecodeCall& decode, const Part& part) {
  DecodeWalk walk(decode.shape, part.sequence, part.offset, part.count());
  for (DecodeRun run; walk.next(run);) {
    const NewRows rows = new_rows(decode, walk.sequence(), run, run.begin, run.end);
    write_rows<C, 1, C::warps>(decode.append, rows, run.sequence, run.head, kit::warp_index());
  }
  __syncthreads();
}

// Those of one block of keys, before it is loaded through tensor maps. Called by a warp, which has
// other blocks in flight meanwhile; enough rows at once for these to cover the time.
template <class C>
__device__ inline void append_rows_of_block(const AppendDecodeCall& decode, const SequenceRun& of,
                                            std::int32_t block) {
  const NewRows rows = new_rows(decode, of.sequence, of.run, block, block + 1);
  if (rows.first >= rows.behind) return;
  write_rows<C, 2, 1>(decode.append, rows, of.run.sequence, of.run.head, 0);
  kit::fence_global_to_async();
  __syncwarp();
}

}  // namespace ps::detail::decoding
