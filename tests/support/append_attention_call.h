// Calls of append_attention() in memory, and the same as two calls, of append_kv() and attention().
// Rows of the caches that no sequence has are NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "penstock/ops/append_attention.h"
#include "support/attention_random.h"
#include "support/elements.h"
#include "support/random_numbers.h"
#include "support/strided.h"

namespace ps::test {

struct AppendAttentionCase {
  std::int64_t sequences = 2, each = 1, capacity = 40;
  std::int64_t heads_k = 2, group = 2, dim = 64, dim_v = 64;
  std::int64_t rotated = 64;  // 0: without tables
  RotaryPairs pairs = RotaryPairs::halves;
  DType type = DType::bf16, table_type = DType::f32;
  std::int64_t page_rows = 0;           // 0: a contiguous cache
  std::vector<std::int32_t> cu_new{};   // empty: `each` rows for every sequence
  std::vector<std::int32_t> lengths{};  // empty: `length`
  std::int64_t length = 0;
  bool advance = false, positions = false, wide_positions = false;
  bool bad_pages = false;  // some entries of the table are no pages

  bool causal = true;
  std::int64_t window_left = -1;
  float softcap = 0;
  bool sinks = false;
  std::vector<std::int32_t> first_k{};
  std::int64_t max_q = 0, max_k = 0;

  bool heads_first = false;  // caches stored as (B, H, S, D)
  bool plain = true;         // contiguous new rows, else of any strides
};

class AppendAttentionCall {
 public:
  AppendAttentionCall(std::uint32_t seed, const AppendAttentionCase& of)
      : case_(of), random_(seed) {
    k_ = new_rows(case_.heads_k, case_.dim);
    v_ = new_rows(case_.heads_k, case_.dim_v);
    q_ = Strided(case_.type, shape_of_rows(heads_q(), case_.dim));
    fill(q_);
    rotated_ = Strided(case_.type, shape_of_rows(heads_q(), case_.dim));
    out_ = Strided(case_.type, shape_of_rows(heads_q(), case_.dim_v));
    lse_ = case_.cu_new.empty() ? Strided(DType::f32, {case_.sequences, heads_q(), case_.each})
                                : Strided(DType::f32, {heads_q(), rows()});
    make_pages();
    k_cache_ = cache(case_.dim);
    v_cache_ = cache(case_.dim_v);
    for (std::int64_t b = 0; b < case_.sequences; ++b) fill_cache(b);
    make_tables();
    lengths_ = integers(case_.lengths);
    cu_new_ = integers(case_.cu_new);
    first_k_ = integers(case_.first_k);
    std::vector<std::int32_t> ends;
    for (std::int64_t b = 0; b < case_.sequences; ++b) {
      const std::int64_t end = length_of(b) + new_rows_of(b);
      ends.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(end, 0, capacity())));
    }
    ends_ = integers(ends);
    sinks_ = Strided(DType::f32, {heads_q()});
    fill(sinks_);
  }

  // The arguments, where `place` puts the arrays.
  struct Arguments {
    AppendKVOptions append{};
    AttentionOptions attention{};
    TensorView rotated{}, ends{};  // for two calls: of q, and the lengths with the new rows
  };
  template <class Place>
  Arguments arguments(const Place& place) {
    Arguments made;
    made.append = {.k = place(k_),
                   .v = place(v_),
                   .k_cache = place(k_cache_),
                   .v_cache = place(v_cache_),
                   .length = case_.length,
                   .advance = case_.advance,
                   .pairs = case_.pairs};
    if (case_.page_rows > 0) made.append.pages = place(pages_);
    if (!case_.cu_new.empty()) made.append.cu_new = place(cu_new_);
    if (!case_.lengths.empty()) made.append.lengths = place(lengths_);
    if (case_.rotated > 0) {
      made.append.cos = place(cos_);
      made.append.sin = place(sin_);
      if (case_.positions) made.append.positions = place(positions_);
    }
    made.attention = {.q = place(q_),
                      .out = place(out_),
                      .lse = place(lse_),
                      .causal = case_.causal,
                      .window_left = case_.window_left,
                      .softcap = case_.softcap,
                      .max_q = case_.max_q,
                      .max_k = case_.max_k};
    if (case_.sinks) made.attention.sinks = place(sinks_);
    if (!case_.first_k.empty()) made.attention.first_k = place(first_k_);
    made.rotated = place(rotated_);
    made.ends = place(ends_);
    return made;
  }
  Arguments arguments() {
    return arguments([](Strided& array) { return array.view(); });
  }

  // What append_attention() does, in two calls.
  static void run_apart(const Arguments& of, const Stream& stream) {
    AppendKVOptions append = of.append;
    AttentionOptions attention = of.attention;
    if (append.cos.data() != nullptr) {
      append.q = attention.q;
      append.q_out = attention.q = of.rotated;
    }
    append_kv(append, stream);
    attention.k = append.k_cache;
    attention.v = append.v_cache;
    attention.cu_q = append.cu_new;
    attention.pages = append.pages;
    attention.lengths_k = of.ends;
    ps::attention(attention, stream);
  }

  // The result that is not the same; "" if all are.
  std::string differs(const AppendAttentionCall& other) const {
    if (k_cache_.bytes() != other.k_cache_.bytes()) return "k_cache";
    if (v_cache_.bytes() != other.v_cache_.bytes()) return "v_cache";
    if (out_.bytes() != other.out_.bytes()) return "out";
    if (lse_.bytes() != other.lse_.bytes()) return "lse";
    if (lengths_.bytes() != other.lengths_.bytes()) return "lengths";
    return "";
  }

  bool surroundings_untouched() const {
    for (const Strided* each : {&k_cache_, &v_cache_, &out_, &lse_, &lengths_}) {
      if (!each->surroundings_untouched()) return false;
    }
    return true;
  }

  Strided& lengths() { return lengths_; }
  Strided& cu_new() { return cu_new_; }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  std::int64_t heads_q() const { return case_.heads_k * case_.group; }
  std::int64_t rows() const {
    // Rows behind the last sequence belong to none.
    return case_.cu_new.empty() ? case_.sequences * case_.each : case_.cu_new.back() + 1;
  }
  std::int64_t capacity() const {
    return case_.page_rows > 0 ? pages_of_sequence() * case_.page_rows : case_.capacity;
  }
  std::int64_t pages_of_sequence() const {
    return (case_.capacity + case_.page_rows - 1) / case_.page_rows;
  }
  std::int64_t page_count() const { return case_.sequences * pages_of_sequence() + 1; }
  std::int64_t length_of(std::int64_t b) const {
    return case_.lengths.empty() ? case_.length : case_.lengths[at(b)];
  }
  std::int64_t new_rows_of(std::int64_t b) const {
    return case_.cu_new.empty() ? case_.each : case_.cu_new[at(b + 1)] - case_.cu_new[at(b)];
  }

  std::vector<std::int64_t> shape_of_rows(std::int64_t heads, std::int64_t dim) const {
    if (case_.cu_new.empty()) return {case_.sequences, case_.each, heads, dim};
    return {rows(), heads, dim};
  }
  Strided new_rows(std::int64_t heads, std::int64_t dim) {
    const Layout layout{.plain = case_.plain, .expand = false, .negative = true, .row = true};
    Strided made(case_.type, shape_of_rows(heads, dim), layout, random_);
    fill(made);
    return made;
  }
  Strided cache(std::int64_t dim) const {
    const std::int64_t heads = case_.heads_k;
    const std::int64_t rows = case_.page_rows > 0 ? case_.page_rows : case_.capacity;
    const std::int64_t row = case_.heads_first ? dim : heads * dim;
    const std::int64_t head = case_.heads_first ? rows * dim : dim;
    return {case_.type,
            {case_.page_rows > 0 ? page_count() : case_.sequences, rows, heads, dim},
            {heads * rows * dim, row, head, 1}};
  }

  void fill_row(Strided& array, const std::vector<std::int64_t>& first) {
    const RandomNumbers& numbers = array.type() == DType::f32 ? f32_numbers_ : numbers_;
    array.fill_row(first, [&] { return numbers(random_); });
  }
  void fill(Strided& array) {
    if (array.size() == 0) return;
    for (std::int64_t i = 0; i < array.size(); i += array.shape().back()) {
      fill_row(array, array.index(i));
    }
  }
  void fill_cache(std::int64_t b) {
    for (std::int64_t r = 0; r < std::min(length_of(b), capacity()); ++r) {
      std::int64_t batch = b, row = r;
      if (case_.page_rows > 0) {
        batch = static_cast<std::int32_t>(pages_.bits({b, r / case_.page_rows}));
        row = r % case_.page_rows;
        if (batch < 0 || batch >= page_count()) continue;
      }
      for (std::int64_t h = 0; h < case_.heads_k; ++h) {
        fill_row(k_cache_, {batch, row, h, 0});
        fill_row(v_cache_, {batch, row, h, 0});
      }
    }
  }

  void make_pages() {
    if (case_.page_rows == 0) return;
    std::vector<std::int32_t> order(at(page_count()));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random_);
    pages_ = Strided(DType::i32, {case_.sequences, pages_of_sequence()});
    for (std::int64_t i = 0; i < pages_.size(); ++i) {
      const bool bad = case_.bad_pages && random_() % 3 == 0;
      const std::int32_t page = !bad         ? order[at(i)]
                                : i % 2 == 0 ? -1 - static_cast<std::int32_t>(i) * 1000000
                                             : static_cast<std::int32_t>(page_count());
      pages_.set_bits(pages_.index(i), static_cast<std::uint32_t>(page));
    }
  }
  void make_tables() {
    const std::int64_t positions = capacity() + 3, half = case_.rotated / 2;
    cos_ = sin_ = Strided(case_.table_type, {positions, half});
    for (std::int64_t i = 0; i < cos_.size(); ++i) {
      const std::vector<std::int64_t> index = cos_.index(i);
      const double angle =
          static_cast<double>(index[0]) *
          std::pow(100.0, -static_cast<double>(index[1]) / static_cast<double>(half));
      const auto bits = [&](double number) {
        return encoded(rounded(number, case_.table_type), case_.table_type);
      };
      cos_.set_bits(index, bits(std::cos(angle)));
      sin_.set_bits(index, bits(std::sin(angle)));
    }
    const auto shape =
        case_.cu_new.empty() ? std::vector{case_.sequences, case_.each} : std::vector{rows()};
    positions_ = Strided(case_.wide_positions ? DType::i64 : DType::i32, shape);
    for (std::int64_t i = 0; i < positions_.size(); ++i) {
      // Some are outside the tables.
      const auto position = static_cast<std::int64_t>(random_() % at(positions + 4)) - 2;
      positions_.set_bits(positions_.index(i), static_cast<std::uint64_t>(position));
    }
  }
  static Strided integers(const std::vector<std::int32_t>& values) {
    Strided made(DType::i32, {static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i) {
      made.set_bits({static_cast<std::int64_t>(i)}, static_cast<std::uint32_t>(values[i]));
    }
    return made;
  }

  AppendAttentionCase case_;
  std::mt19937 random_;
  RandomNumbers numbers_{case_.type, 1, random_}, f32_numbers_{DType::f32, 1, random_};
  Strided k_, v_, q_, rotated_, out_, lse_, k_cache_, v_cache_, cos_, sin_, positions_;
  Strided lengths_, cu_new_, first_k_, ends_, sinks_, pages_;
};

// Any call that is allowed, on a GPU, too: up to 16 new rows per sequence.
inline AppendAttentionCase random_append_attention(std::uint32_t seed, std::int64_t most_rows,
                                                   const std::vector<AttentionDims>& dims,
                                                   const std::vector<DType>& types,
                                                   const std::vector<std::int64_t>& page_rows) {
  std::mt19937 random(seed * 7919 + 3);
  const auto below = [&](std::int64_t count) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
  };
  const auto one_of = [&](const auto& list) {
    return list[static_cast<std::size_t>(below(static_cast<std::int64_t>(std::size(list))))];
  };
  constexpr std::int64_t groups[] = {1, 2, 4, 5, 8, 17, 40};
  const AttentionDims dim = one_of(dims);
  AppendAttentionCase made{.sequences = 1 + below(4),
                           .each = below(2) == 0 ? 1 : 1 + below(16),
                           .capacity = 16 + below(most_rows),
                           .heads_k = 1 + below(2),
                           .group = one_of(groups),
                           .dim = dim.dim,
                           .dim_v = dim.dim_v,
                           .rotated = 0,
                           .pairs = below(2) == 0 ? RotaryPairs::halves : RotaryPairs::neighbours,
                           .type = one_of(types),
                           .advance = below(2) == 0,
                           .causal = below(4) != 0,
                           .softcap = below(5) == 0 ? 20.F : 0.F,
                           .sinks = below(4) == 0,
                           .heads_first = below(2) == 0,
                           .plain = below(2) == 0};
  made.table_type = below(2) == 0 ? made.type : DType::f32;
  if (below(4) != 0) {
    made.rotated = below(2) == 0 ? made.dim : 2 * (1 + below(made.dim / 2));
    made.positions = below(3) == 0;
    made.wide_positions = below(2) == 0;
  }
  if (below(2) == 0) {
    made.page_rows = one_of(page_rows);
    made.bad_pages = below(4) == 0;
  }
  if (below(3) == 0) made.window_left = below(most_rows / 2);
  if (below(3) == 0) {
    made.cu_new = {static_cast<std::int32_t>(below(3))};
    for (std::int64_t b = 0; b < made.sequences; ++b) {
      made.cu_new.push_back(made.cu_new.back() + static_cast<std::int32_t>(below(17)));
    }
    made.max_q = below(4) == 0 ? 1 + below(16) : 16;
  }
  if (below(5) == 0) made.max_k = 1 + below(made.capacity);
  const bool begins = below(4) == 0;
  if (below(5) == 0 && made.cu_new.empty() && made.each <= made.capacity) {
    made.length = below(made.capacity - made.each + 1);
    made.advance = false;
  } else {
    for (std::int64_t b = 0; b < made.sequences; ++b) {
      // Some sequences have no room for all rows, or rows before their beginning.
      const std::int64_t length =
          below(6) == 0 ? below(made.capacity + 40) - 20 : below(made.capacity - 15);
      made.lengths.push_back(static_cast<std::int32_t>(length));
    }
  }
  for (std::int64_t b = 0; begins && b < made.sequences; ++b) {
    made.first_k.push_back(static_cast<std::int32_t>(below(made.capacity)));
  }
  return made;
}

}  // namespace ps::test
