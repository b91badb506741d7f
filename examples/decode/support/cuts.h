// The line of blocks of keys, and how it is cut into equal parts. An item is a head of k of one
// sequence, with all blocks of keys of this sequence. The items of all sequences follow each other,
// and so do their blocks. A part may begin and end inside an item.
#pragma once

#include <cstdint>

#include "penstock/kit/config.h"

namespace ladder::decode {

constexpr unsigned block_keys = 64;

// A sequence without keys has a block, too, so that somebody writes its result.
PENSTOCK_HD constexpr unsigned blocks_of(int length) {
  const unsigned blocks = (static_cast<unsigned>(length) + block_keys - 1) / block_keys;
  return blocks > 0 ? blocks : 1;
}

// Blocks of keys [begin, end) of an item.
struct Run {
  unsigned sequence = 0, head = 0;  // of k
  unsigned begin = 0, end = 0;
  bool is_first = true, is_last = true;  // whether it has the item's first and last block

  PENSTOCK_HD constexpr bool is_whole() const { return is_first && is_last; }
};

// The number of parts: no part is empty, so that the combination need not skip any.
PENSTOCK_HD constexpr unsigned count_of_parts(unsigned total, unsigned most) {
  return total < most ? total : most;
}

// Part `part` of `parts` is blocks [cut(.., part), cut(.., part + 1)) of `total`.
PENSTOCK_HD constexpr unsigned cut(unsigned total, unsigned parts, unsigned part) {
  return static_cast<unsigned>(std::uint64_t{total} * part / parts);
}
// The part that has a block.
PENSTOCK_HD constexpr unsigned part_of(unsigned total, unsigned parts, unsigned block) {
  return static_cast<unsigned>((std::uint64_t{block + 1} * parts - 1) / total);
}

// Where a part keeps what it computed of an item that it shares with others. There are at most two:
// the one in which it begins, and the one in which it ends.
PENSTOCK_HD constexpr unsigned slot_of(unsigned part, bool is_first) {
  return 2 * part + (is_first ? 1 : 0);
}

// A place in the line.
struct Place {
  unsigned sequence = 0;
  unsigned offset = 0;  // in blocks, from the sequence's first item on
};

// The runs of a part, one after the other.
class Walk {
 public:
  // `lengths` of all sequences, `heads` of k, and the place and number of the part's blocks.
  PENSTOCK_HD constexpr Walk(const int* lengths, unsigned heads, Place begin, unsigned count)
      : lengths_(lengths), heads_(heads), at_(begin), left_(count) {}

  // False if there is none.
  PENSTOCK_HD constexpr bool next(Run& run) {
    if (left_ == 0) return false;
    unsigned blocks = blocks_of(lengths_[at_.sequence]);
    while (at_.offset >= heads_ * blocks) {
      at_.offset -= heads_ * blocks;
      blocks = blocks_of(lengths_[++at_.sequence]);
    }
    run.sequence = at_.sequence;
    run.head = at_.offset / blocks;
    run.begin = at_.offset - run.head * blocks;
    run.end = left_ < blocks - run.begin ? run.begin + left_ : blocks;
    run.is_first = run.begin == 0;
    run.is_last = run.end == blocks;
    at_.offset += run.end - run.begin;
    left_ -= run.end - run.begin;
    return true;
  }

 private:
  const int* lengths_;
  unsigned heads_;
  Place at_;
  unsigned left_;
};

}  // namespace ladder::decode
