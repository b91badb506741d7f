// What every rung computes: attention of one query per sequence over a long cache of keys and
// values. For query head h of every sequence,
//
//   out[h] = sum over keys j of softmax(scale * q[h] . k[j, h / group])[j] * v[j, h / group]
//
// where `group` query heads share a head of k and v. Elements are bf16, sums are floats. A sequence
// without keys gets zeros.
#pragma once

#include <cstddef>

#include "attention/support/problem.h"
#include "penstock/base/view.h"
#include "penstock/kit/scheduler.h"

namespace ladder::decode {

using attention::dim;  // of a head: 128

constexpr unsigned tile_rows = 16;  // of mma.sync; a group has at most as many query heads
constexpr unsigned most_parts = 1024, most_splits = 32;  // for which there is memory

// Of scores in units of log2: their maximum, and the sum of 2^(score - maximum).
struct Stats {
  float maximum, sum;
};

// What is known of rows of the result before it is combined: Stats, and 128 sums of values that are
// weighted by 2^(score - maximum).
struct Partials {
  Stats* stats = nullptr;
  float* sums = nullptr;
};

struct Problem {
  // (sequences, query heads, 128), contiguous.
  const void* q = nullptr;
  void* out = nullptr;
  // (rows, heads of k, 128), contiguous. What rows hold that belong to no key may be NaN.
  const void* k = nullptr;
  const void* v = nullptr;
  std::size_t rows = 0;
  unsigned sequences = 0, heads_q = 0, heads_k = 0;  // at least 1
  const int* lengths = nullptr;                      // keys of every sequence
  // Without pages: key j of sequence b is row starts[b] + j. One more than there are sequences.
  const int* starts = nullptr;
  // With pages: key j is row j % page_rows of page pages[b * table_width + j / page_rows]. Keys and
  // values on a page that does not exist are zeros. Null without pages.
  const int* pages = nullptr;
  unsigned table_width = 0;
  ps::kit::Divisor page_rows{};
  unsigned page_count = 0;
  float scale = 0;
  Partials partials{};
  ps::MemoryView workspace{};  // of the library's own kernel

  PENSTOCK_HD unsigned group() const { return heads_q / heads_k; }
};

}  // namespace ladder::decode
