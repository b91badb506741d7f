// How the decode kernels cut their work into parts. Pure arithmetic that kernels and host tests
// share.
//
// The queries of all heads that share a head of k are the rows of a tile: row i * group + h is
// query i of the h-th of these heads. An item is one tile and one head of k of one sequence, with
// all blocks of keys of its sequence. The items of all sequences follow each other, and so do their
// blocks, which are cut into parts of equal size. A part may begin and end inside an item; what it
// computes of such an item is combined with what other parts compute of it.
//
// With `chunked`, blocks are cut only where chunks end. The chunks of a sequence depend on nothing
// but its own lengths, so that its results do not depend on its neighbours or on the GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attention/mask.h"
#include "ops/attention/work.h"
#include "penstock/kit/config.h"

namespace ps::detail {

// A sequence as the decode kernels see it. Blocks of keys are numbered from key -shift on.
struct DecodeSequence {
  AttentionSequence at{};
  std::int32_t shift = 0;
  std::int32_t first_block = 0, blocks = 1;  // those with a key that any query attends to, or one
  std::int32_t row_tiles = 1;                // of 16 rows, in a tile: 1, 2 or 4
  std::int32_t tiles = 0;
  std::int32_t piece_blocks = 1;  // blocks that are not cut
  std::int32_t pieces = 1;        // of an item

  PENSTOCK_HD constexpr std::int32_t tile_rows() const { return 16 * row_tiles; }
  // The first row of a tile, among those of the sequence and a head of k, and how many it has.
  PENSTOCK_HD constexpr std::int32_t first_row(std::int32_t tile) const {
    return tile * tile_rows();
  }
  PENSTOCK_HD constexpr std::int32_t rows_of(std::int32_t tile, std::int32_t group) const {
    const std::int32_t left = at.q_length * group - first_row(tile);
    return left < tile_rows() ? left : tile_rows();
  }
  // The key that is first in a block of `keys`; negative ones are before the sequence.
  PENSTOCK_HD constexpr std::int32_t first_key(std::int32_t block, std::int32_t keys) const {
    return block * keys - shift;
  }
};

// What is cut, and how.
struct DecodeShape {
  AttentionSequences sequences{};
  AttentionReach reach{};
  std::int32_t heads_k = 1, group = 1;
  std::int32_t keys = 64;           // of a block
  std::int32_t most_row_tiles = 4;  // of 16 rows, in a tile: 1, 2 or 4
  bool aligned = false;  // blocks begin at multiples of `keys` rows of a sequence, for pages
  bool chunked = false;

  PENSTOCK_HD constexpr DecodeSequence operator()(std::int32_t b) const {
    DecodeSequence found;
    found.at = sequences(b);
    const std::int32_t queries = found.at.q_length, count = found.at.k_length;
    const std::int64_t rows = std::int64_t{queries} * group;
    while (found.row_tiles < most_row_tiles && found.tile_rows() < rows) found.row_tiles *= 2;
    found.tiles = static_cast<std::int32_t>((rows + found.tile_rows() - 1) / found.tile_rows());
    if (aligned) found.shift = found.at.k_begin % keys;
    if (queries > 0) {
      const std::int32_t begin = attention_keys(0, queries, count, reach).begin;
      const std::int32_t end = attention_keys(queries - 1, queries, count, reach).end;
      if (begin < end) {
        found.first_block = (begin + found.shift) / keys;
        found.blocks = (end + found.shift + keys - 1) / keys - found.first_block;
      }
    }
    if (chunked) {
      const std::int32_t even =
          (found.blocks + attention_decode_chunks - 1) / attention_decode_chunks;
      const std::int32_t least = attention_decode_chunk_keys / keys;
      found.piece_blocks = even > least ? even : least;
    }
    found.pieces = (found.blocks + found.piece_blocks - 1) / found.piece_blocks;
    return found;
  }

  // The pieces of all items of a sequence.
  PENSTOCK_HD constexpr std::int64_t pieces(const DecodeSequence& sequence) const {
    return std::int64_t{heads_k} * sequence.tiles * sequence.pieces;
  }

  // Whether all sequences have the same lengths.
  PENSTOCK_HD constexpr bool alike() const {
    return sequences.cu_q == nullptr && sequences.cu_k == nullptr && sequences.first_k == nullptr &&
           sequences.lengths_k == nullptr;
  }
};

// Part `part` of `parts` is pieces [decode_cut(.., part), decode_cut(.., part + 1)) of `total`. No
// part is empty if there are at most as many as pieces.
PENSTOCK_HD constexpr std::int64_t decode_cut(std::int64_t total, std::int32_t parts,
                                              std::int32_t part) {
  // As total * part / parts, with a single division of 64 bits for all parts.
  const std::int64_t each = total / parts;
  const auto rest = static_cast<std::int32_t>(total - each * parts);
  return each * part + rest * part / parts;
}
// How many parts to cut items of equal size into, of which `most` can run at once, at least 1: if a
// few less do, so many that parts end where items do.
constexpr std::int32_t decode_parts(std::int64_t items, std::int32_t most) {
  for (std::int32_t parts = most; parts >= most - most / 16; --parts) {
    if (items > 0 && (items % parts == 0 || parts % items == 0)) return parts;
  }
  return most;
}
// The blocks of threads of a launch, of which `resident` can run at once. At least one: if none
// can, its launch reports what it lacks.
constexpr std::int32_t decode_blocks(const DecodeShape& shape, std::int32_t resident) {
  const std::int32_t most = std::clamp(resident, 1, attention_decode_parts);
  if (!shape.alike() || shape.chunked) return most;
  return decode_parts(std::int64_t{shape.heads_k} * shape(0).tiles * shape.sequences.count, most);
}
PENSTOCK_HD constexpr std::int32_t decode_part_of(std::int64_t total, std::int32_t parts,
                                                  std::int64_t piece) {
  return static_cast<std::int32_t>(((piece + 1) * parts - 1) / total);
}

// Blocks [begin, end) of one item, which are computed together.
struct DecodeRun {
  std::int32_t sequence = 0, head = 0, tile = 0;  // head of k
  std::int32_t begin = 0, end = 0;
  std::int32_t piece = 0;                // the first one
  bool is_first = true, is_last = true;  // whether it has the item's first and last piece
  std::int64_t behind = 0;               // pieces of the item behind the run

  PENSTOCK_HD constexpr bool is_whole() const { return is_first && is_last; }
};

// The runs of a part, one after the other.
class DecodeWalk {
 public:
  // `count` pieces, the first of which is `offset` pieces behind the beginning of `sequence`.
  PENSTOCK_HD constexpr DecodeWalk(const DecodeShape& shape, std::int32_t sequence,
                                   std::int64_t offset, std::int64_t count)
      : shape_(shape), sequence_(sequence), offset_(offset), left_(count) {
    if (left_ > 0) found_ = shape_(sequence_);
  }

  PENSTOCK_HD constexpr bool next(DecodeRun& run) {
    if (left_ == 0) return false;
    for (std::int64_t pieces; offset_ >= (pieces = shape_.pieces(found_));) {
      offset_ -= pieces;
      found_ = shape_(++sequence_);
    }
    const std::int64_t item = offset_ / found_.pieces;
    run.sequence = sequence_;
    run.head = static_cast<std::int32_t>(item / found_.tiles);
    run.tile = static_cast<std::int32_t>(item - std::int64_t{run.head} * found_.tiles);
    run.piece = static_cast<std::int32_t>(offset_ - item * found_.pieces);
    std::int64_t count = shape_.chunked ? 1 : found_.pieces - run.piece;
    if (count > left_) count = left_;
    const auto end = run.piece + static_cast<std::int32_t>(count);
    run.is_first = run.piece == 0;
    run.is_last = end == found_.pieces;
    run.behind = found_.pieces - end;
    run.begin = found_.first_block + run.piece * found_.piece_blocks;
    const std::int32_t behind = end * found_.piece_blocks;
    run.end = found_.first_block + (behind < found_.blocks ? behind : found_.blocks);
    offset_ += count;
    left_ -= count;
    return true;
  }

  // The sequence of the last run.
  PENSTOCK_HD constexpr const DecodeSequence& sequence() const { return found_; }
  // Pieces that no run had yet.
  PENSTOCK_HD constexpr std::int64_t left() const { return left_; }

 private:
  const DecodeShape& shape_;
  std::int32_t sequence_;
  std::int64_t offset_, left_;
  DecodeSequence found_{};
};

// An item whose first run is the last one of a part, and that other parts go on with. Written by
// the part, read by the combination.
struct DecodeJoint {
  std::int32_t sequence;  // negative: none
  std::int32_t head, tile;
  std::int32_t last_part;
};
static_assert(sizeof(DecodeJoint) == attention_joint_bytes);

// The joint of the part that has pieces up to `end` of `total`; `last` is its last run.
PENSTOCK_HD constexpr DecodeJoint decode_joint(std::int64_t total, std::int32_t parts,
                                               std::int64_t end, const DecodeRun& last) {
  if (!last.is_first || last.is_last) return {-1, 0, 0, 0};
  return {last.sequence, last.head, last.tile, decode_part_of(total, parts, end - 1 + last.behind)};
}

// Where a part keeps what it computed of an item that it does not compute alone: it does not have
// the first run of one such item, and not the last run of another one.
PENSTOCK_HD constexpr std::int32_t decode_slot(std::int32_t part, bool is_first) {
  return 2 * part + (is_first ? 1 : 0);
}

// The rows of the workspace with what parts compute of items that they do not compute alone.
struct DecodeRows {
  std::int32_t tile_rows = 0;  // of a slot
  std::int32_t chunks = 0;     // above 0: of a row of the result

  // Of a row of a tile.
  PENSTOCK_HD constexpr std::int64_t of_part(std::int32_t part, bool is_first,
                                             std::int32_t row) const {
    return std::int64_t{decode_slot(part, is_first)} * tile_rows + row;
  }
  // Of the row of the result with this number.
  PENSTOCK_HD constexpr std::int64_t of_chunk(std::int64_t number, std::int32_t chunk) const {
    return number * chunks + chunk;
  }
  // Where a part keeps a row of its run: either.
  PENSTOCK_HD constexpr std::int64_t of_run(std::int32_t part, const DecodeRun& run,
                                            std::int32_t row, std::int64_t number) const {
    return chunks > 0 ? of_chunk(number, run.piece) : of_part(part, run.is_first, row);
  }
};

}  // namespace ps::detail
