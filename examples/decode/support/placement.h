// Which keys a problem has, and in which rows of k and v they lie. Needs no GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ladder::decode {

struct Shape {
  std::vector<int> lengths = {};  // keys of every sequence
  unsigned heads_q = 32, heads_k = 8;
  bool paged = false;       // else the rows of a sequence follow each other
  unsigned page_rows = 64;  // sequences begin at multiples of it, with pages or without
  unsigned bad_every = 0;   // with pages: every such page does not exist; 0: all exist

  std::size_t keys() const;  // of all sequences
  double bytes() const;      // of their keys and values, for all heads
};

// `count` sequences of `keys` keys each.
std::vector<int> equal_lengths(unsigned count, int keys);
// As many keys in all, of which one sequence in the middle has half. `count`: at least 2.
std::vector<int> one_long(unsigned count, int keys);

struct Placement {
  struct Rows {
    std::size_t first, count;
  };

  std::size_t page_rows = 0;
  unsigned page_count = 0, table_width = 0;
  std::vector<int> starts = {};   // of every sequence, and the end of the last one
  std::vector<int> pages = {};    // (sequences, table_width): in random order; empty without pages
  std::vector<Rows> unused = {};  // that hold no key

  std::size_t rows() const { return page_rows * page_count; }
  // The row of a key; negative if its page does not exist.
  std::int64_t row_of(unsigned sequence, unsigned key) const;
};

// Throws InvalidArgument for shapes that the rungs cannot compute.
Placement place(const Shape& shape);

}  // namespace ladder::decode
