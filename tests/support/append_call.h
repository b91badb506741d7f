// Calls of append_kv() in memory, and what they should give, byte by byte.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "penstock/ops/append_kv.h"
#include "support/elements.h"
#include "support/strided.h"

namespace ps::test {

struct AppendCase {
  std::int64_t sequences = 2, each = 3, capacity = 8;
  std::int64_t heads_k = 2, heads_q = 0, dim = 16, dim_v = 16;
  std::int64_t rotated = 0;  // 0: without tables
  RotaryPairs pairs = RotaryPairs::halves;
  DType type = DType::bf16, table_type = DType::f32;
  std::int64_t page_rows = 0;             // 0: a contiguous cache
  std::vector<std::int32_t> cu_new{};     // empty: `each` rows for every sequence
  std::vector<std::int32_t> lengths{};    // empty: `length`
  std::vector<std::int64_t> positions{};  // one per new row; empty: by the rows
  bool wide_positions = false;
  std::int64_t table_rows = 64;
  std::int64_t length = 0;
  bool advance = false, in_place = false;
  bool plain = true;  // contiguous arrays, else of any strides
};

class AppendCall {
 public:
  AppendCall(std::uint32_t seed, const AppendCase& of) : case_(of), random_(seed) {
    k_ = random_values(new_shape(case_.heads_k, case_.dim));
    v_ = random_values(new_shape(case_.heads_k, case_.dim_v));
    q_ = random_values(new_shape(case_.heads_q, case_.dim));
    q_out_ = case_.in_place ? q_ : array(case_.type, new_shape(case_.heads_q, case_.dim));
    const std::int64_t pages = case_.page_rows > 0 ? page_count() : case_.sequences;
    const std::int64_t rows = case_.page_rows > 0 ? case_.page_rows : case_.capacity;
    k_cache_ = random_values({pages, rows, case_.heads_k, case_.dim});
    v_cache_ = random_values({pages, rows, case_.heads_k, case_.dim_v});
    cos_ = table([](double angle) { return std::cos(angle); });
    sin_ = table([](double angle) { return std::sin(angle); });
    lengths_ = integers(case_.lengths);
    cu_new_ = integers(case_.cu_new);
    positions_ = Strided(
        case_.wide_positions ? DType::i64 : DType::i32,
        case_.cu_new.empty() ? std::vector{case_.sequences, case_.each} : std::vector{rows_of_k()});
    for (std::size_t i = 0; i < case_.positions.size(); ++i) {
      positions_.set_bits(positions_.index(static_cast<std::int64_t>(i)),
                          static_cast<std::uint64_t>(case_.positions[i]));
    }
    pages_ = shuffled_pages();
  }

  // `place` gives the view of an array where append_kv() is to find it.
  template <class Place>
  AppendKVOptions options(const Place& place) {
    AppendKVOptions call{.k = place(k_),
                         .v = place(v_),
                         .k_cache = place(k_cache_),
                         .v_cache = place(v_cache_),
                         .length = case_.length,
                         .advance = case_.advance,
                         .pairs = case_.pairs};
    if (case_.page_rows > 0) call.pages = place(pages_);
    if (!case_.cu_new.empty()) call.cu_new = place(cu_new_);
    if (!case_.lengths.empty()) call.lengths = place(lengths_);
    if (case_.rotated > 0) {
      call.cos = place(cos_);
      call.sin = place(sin_);
      if (!case_.positions.empty()) call.positions = place(positions_);
      if (case_.heads_q > 0) {
        call.q_out = place(q_out_);
        call.q = case_.in_place ? call.q_out : place(q_);
      }
    }
    return call;
  }
  AppendKVOptions options() {
    return options([](Strided& array) { return array.view(); });
  }

  void set_page(std::int64_t sequence, std::int64_t index, std::int32_t page) {
    pages_.set_bits({sequence, index}, static_cast<std::uint32_t>(page));
  }

  // What the call should leave in its arrays, from what they hold now.
  void expect() {
    expected_k_ = k_cache_, expected_v_ = v_cache_, expected_q_ = q_out_;
    expected_lengths_ = lengths_;
    const std::int64_t rows = rows_of_k();
    for (std::int64_t row = 0; row < rows; ++row) expect(row);
    const bool advances = case_.advance && rows > 0;
    for (std::int64_t b = 0; advances && b < case_.sequences; ++b) {
      const std::int64_t length = length_of(b) + new_rows_of(b);
      const std::int64_t clamped = std::clamp<std::int64_t>(length, 0, capacity());
      expected_lengths_.set_bits({b}, static_cast<std::uint64_t>(clamped));
    }
  }
  bool surroundings_untouched() const {
    return k_cache_.surroundings_untouched() && v_cache_.surroundings_untouched() &&
           q_out_.surroundings_untouched() && lengths_.surroundings_untouched();
  }
  // The array that is not as expected; "" if there is none.
  std::string wrong() const {
    if (k_cache_.bytes() != expected_k_.bytes()) return "k_cache";
    if (v_cache_.bytes() != expected_v_.bytes()) return "v_cache";
    if (q_out_.bytes() != expected_q_.bytes()) return "q_out";
    if (lengths_.bytes() != expected_lengths_.bytes()) return "lengths";
    return "";
  }

 private:
  std::vector<std::int64_t> new_shape(std::int64_t heads, std::int64_t dim) const {
    if (case_.cu_new.empty()) return {case_.sequences, case_.each, heads, dim};
    return {rows_of_k(), heads, dim};
  }
  std::int64_t rows_of_k() const {
    // Rows behind the last sequence belong to none.
    return case_.cu_new.empty() ? case_.sequences * case_.each
                                : std::max(0, case_.cu_new.back()) + 1;
  }
  std::int64_t pages_of_sequence() const {
    return (case_.capacity + case_.page_rows - 1) / case_.page_rows;
  }
  std::int64_t page_count() const { return case_.sequences * pages_of_sequence() + 2; }
  std::int64_t capacity() const {
    return case_.page_rows > 0 ? pages_of_sequence() * case_.page_rows : case_.capacity;
  }
  std::int64_t length_of(std::int64_t b) const {
    return case_.lengths.empty() ? case_.length : case_.lengths[static_cast<std::size_t>(b)];
  }
  std::int64_t new_rows_of(std::int64_t b) const {
    if (case_.cu_new.empty()) return case_.each;
    const auto i = static_cast<std::size_t>(b);
    return case_.cu_new[i + 1] - case_.cu_new[i];
  }

  Strided array(DType type, std::vector<std::int64_t> shape) {
    const Layout layout{.plain = case_.plain, .expand = false, .negative = true, .row = true};
    return {type, std::move(shape), layout, random_};
  }
  Strided random_values(std::vector<std::int64_t> shape) {
    Strided made = array(case_.type, std::move(shape));
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < made.size(); ++i) {
      const double value = rounded(normal(random_), case_.type);
      made.set_bits(made.index(i), encoded(value, case_.type));
    }
    return made;
  }
  template <class Function>
  Strided table(const Function& function) {
    Strided made = array(case_.table_type, {case_.table_rows, case_.rotated / 2});
    for (std::int64_t i = 0; i < made.size(); ++i) {
      const std::vector<std::int64_t> at = made.index(i);
      const double angle =
          static_cast<double>(at[0]) *
          std::pow(100.0, -2.0 * static_cast<double>(at[1]) / static_cast<double>(case_.rotated));
      made.set_bits(at, encoded(rounded(function(angle), case_.table_type), case_.table_type));
    }
    return made;
  }
  static Strided integers(const std::vector<std::int32_t>& values) {
    Strided made(DType::i32, {static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i) {
      made.set_bits({static_cast<std::int64_t>(i)}, static_cast<std::uint32_t>(values[i]));
    }
    return made;
  }
  Strided shuffled_pages() {
    if (case_.page_rows == 0) return {};
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(page_count()));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int32_t>(i);
    std::shuffle(numbers.begin(), numbers.end(), random_);
    Strided made = array(DType::i32, {case_.sequences, pages_of_sequence()});
    for (std::int64_t i = 0; i < made.size(); ++i) {
      made.set_bits(made.index(i),
                    static_cast<std::uint32_t>(numbers[static_cast<std::size_t>(i)]));
    }
    return made;
  }

  void expect(std::int64_t row) {
    std::int64_t b = 0, number = 0;
    std::vector<std::int64_t> from;
    if (case_.cu_new.empty()) {
      b = row / case_.each;
      number = row % case_.each;
      from = {b, number};
    } else {
      while (b < case_.sequences && row >= case_.cu_new[static_cast<std::size_t>(b) + 1]) ++b;
      if (b == case_.sequences || row < case_.cu_new[0]) return;
      number = row - case_.cu_new[static_cast<std::size_t>(b)];
      from = {row};
    }
    const std::int64_t to = length_of(b) + number;
    const std::int64_t asked =
        case_.positions.empty() ? to : case_.positions[static_cast<std::size_t>(row)];
    const std::int64_t position = std::clamp<std::int64_t>(asked, 0, case_.table_rows - 1);
    if (case_.rotated > 0) {
      for (std::int64_t h = 0; h < case_.heads_q; ++h)
        rotate(q_, from, expected_q_, from, h, position);
    }
    if (to < 0 || to >= capacity()) return;
    std::vector<std::int64_t> slot{b, to};
    if (case_.page_rows > 0) {
      const auto page = static_cast<std::int32_t>(pages_.bits({b, to / case_.page_rows}));
      if (page < 0 || page >= page_count()) return;
      slot = {page, to % case_.page_rows};
    }
    for (std::int64_t h = 0; h < case_.heads_k; ++h) {
      rotate(k_, from, expected_k_, slot, h, position);
      for (std::int64_t d = 0; d < case_.dim_v; ++d) {
        expected_v_.set_bits(joined(slot, h, d), v_.bits(joined(from, h, d)));
      }
    }
  }

  static std::vector<std::int64_t> joined(std::vector<std::int64_t> at, std::int64_t head,
                                          std::int64_t element) {
    at.push_back(head);
    at.push_back(element);
    return at;
  }
  static float number(const Strided& array, const std::vector<std::int64_t>& at) {
    return static_cast<float>(decoded(static_cast<std::uint32_t>(array.bits(at)), array.type()));
  }

  void rotate(const Strided& in, const std::vector<std::int64_t>& from, Strided& out,
              const std::vector<std::int64_t>& to, std::int64_t head, std::int64_t position) {
    const auto set = [&](std::int64_t element, float value) {
      out.set_bits(joined(to, head, element), encoded(rounded(value, case_.type), case_.type));
    };
    const std::int64_t half = case_.rotated / 2;
    for (std::int64_t i = 0; i < half; ++i) {
      const bool halves = case_.pairs == RotaryPairs::halves;
      const std::int64_t first = halves ? i : 2 * i, second = halves ? i + half : 2 * i + 1;
      const float x = number(in, joined(from, head, first));
      const float y = number(in, joined(from, head, second));
      const float c = number(cos_, {position, i}), s = number(sin_, {position, i});
      const float ys = y * s, xs = x * s;
      set(first, std::fma(x, c, -ys));
      set(second, std::fma(y, c, xs));
    }
    for (std::int64_t d = case_.rotated; d < case_.dim; ++d) {
      out.set_bits(joined(to, head, d), in.bits(joined(from, head, d)));
    }
  }

  AppendCase case_;
  std::mt19937 random_;
  Strided k_, v_, q_, q_out_, k_cache_, v_cache_, cos_, sin_, lengths_, cu_new_, positions_, pages_;
  Strided expected_k_, expected_v_, expected_q_, expected_lengths_;
};

// Any call that is allowed, also one with rows that have no place.
inline AppendCase random_append(std::uint32_t seed) {
  std::mt19937 random(seed * 7919 + 1);
  const auto below = [&](std::int64_t count) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
  };
  const DType types[] = {DType::bf16, DType::f16, DType::f32};
  AppendCase made;
  made.sequences = 1 + below(4);
  made.each = below(6);
  made.capacity = below(12);
  made.heads_k = 1 + below(3);
  const bool even = below(2) == 0;  // sizes of vectors
  made.dim = even ? 16 * (1 + below(8)) : 1 + below(70);
  made.dim_v = even ? 16 * (1 + below(8)) : 1 + below(70);
  made.type = types[below(3)];
  made.table_type = below(2) == 0 ? made.type : DType::f32;
  made.pairs = below(2) == 0 ? RotaryPairs::halves : RotaryPairs::neighbours;
  if (below(4) != 0 && made.dim > 1) {
    made.rotated = below(2) == 0 ? made.dim / 2 * 2 : 2 * (1 + below(made.dim / 2));
    made.heads_q = below(4);
    made.in_place = below(2) == 0;
  }
  if (below(2) == 0) made.page_rows = 1 + below(9);
  made.table_rows = 1 + below(20);
  made.plain = below(2) == 0;
  std::int64_t rows = made.sequences * made.each;
  if (below(2) == 0) {
    std::int32_t end = static_cast<std::int32_t>(below(3));
    for (std::int64_t b = 0; b <= made.sequences; ++b) {
      made.cu_new.push_back(end);
      end += static_cast<std::int32_t>(below(5));
    }
    rows = made.cu_new.back() + 1;
  }
  // A call for whose rows the cache has no room at all is refused.
  if (made.cu_new.empty()) made.capacity = std::max(made.capacity, made.each);
  if (below(3) != 0 || !made.cu_new.empty()) {
    for (std::int64_t b = 0; b < made.sequences; ++b) {
      made.lengths.push_back(static_cast<std::int32_t>(below(made.capacity + 5) - 2));
    }
    made.advance = below(2) == 0;
  } else {
    made.length = below(made.capacity - made.each + 1);
  }
  if (made.rotated > 0 && below(3) == 0) {
    made.wide_positions = below(2) == 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      made.positions.push_back(below(made.table_rows + 4) - 2);
    }
  }
  return made;
}

}  // namespace ps::test
