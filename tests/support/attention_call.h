// Calls of attention() in memory, and what they should give: the formula in f64. What is no part of
// a sequence is NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "penstock/ops/attention.h"
#include "support/elements.h"
#include "support/strided.h"

namespace ps::test {

struct AttentionCase {
  std::int64_t sequences = 2, q_rows = 5, k_rows = 7;
  std::int64_t heads_q = 2, heads_k = 2, dim = 16, dim_v = 16;
  DType type = DType::bf16;
  bool causal = false;
  std::int64_t window_left = -1, window_right = -1;
  float softcap = 0, scale = 0;
  bool sinks = false;
  DType sink_type = DType::f32;
  bool lse = true;
  std::vector<std::int32_t> cu_q{}, cu_k{}, first_k{}, lengths_k{};  // empty: none
  std::int64_t page_rows = 0;  // of the pages in which k and v are stored; 0: not in pages
  bool bad_pages = false;      // some entries of the table are no pages

  bool heads_first = false;  // stored as (B, H, S, D)
  std::int64_t padding = 0;  // elements between rows
  double size = 1;           // standard deviation of q and k
};

class AttentionCall {
 public:
  AttentionCall(std::uint32_t seed, const AttentionCase& of) : case_(of), random_(seed) {
    q_ = array(case_.cu_q, case_.q_rows, case_.heads_q, case_.dim);
    make_pages();
    k_ = array_of_keys(case_.dim);
    v_ = array_of_keys(case_.dim_v);
    out_ = array(case_.cu_q, case_.q_rows, case_.heads_q, case_.dim_v);
    lse_ = case_.cu_q.empty() ? Strided(DType::f32, {case_.sequences, case_.heads_q, case_.q_rows})
                              : Strided(DType::f32, {case_.heads_q, case_.q_rows});
    sinks_ = Strided(case_.sink_type, {case_.heads_q});
    for (std::int64_t h = 0; h < case_.heads_q; ++h) set(sinks_, {h}, 1);
    cu_q_ = integers(case_.cu_q);
    cu_k_ = integers(case_.cu_k);
    first_k_ = integers(case_.first_k);
    lengths_k_ = integers(case_.lengths_k);
    for (std::int64_t b = 0; b < count(); ++b) fill(b);
  }

  // The call, without workspace and pool. `place` gives the view of an array where attention() is
  // to find it.
  template <class Place>
  AttentionOptions options(const Place& place) {
    AttentionOptions call{.q = place(q_),
                          .k = place(k_),
                          .v = place(v_),
                          .out = place(out_),
                          .causal = case_.causal,
                          .window_left = case_.window_left,
                          .window_right = case_.window_right,
                          .softcap = case_.softcap,
                          .scale = case_.scale};
    if (case_.lse) call.lse = place(lse_);
    if (case_.sinks) call.sinks = place(sinks_);
    if (!case_.cu_q.empty()) call.cu_q = place(cu_q_);
    if (!case_.cu_k.empty()) call.cu_k = place(cu_k_);
    if (!case_.first_k.empty()) call.first_k = place(first_k_);
    if (!case_.lengths_k.empty()) call.lengths_k = place(lengths_k_);
    if (case_.page_rows > 0) call.pages = place(pages_);
    return call;
  }
  AttentionOptions options() {
    return options([](Strided& array) { return array.view(); });
  }

  // Passes these to attention() as cu_q and cu_k, and as first_k and lengths_k.
  void spoil_lengths(const std::vector<std::int32_t>& cumulative,
                     const std::vector<std::int32_t>& lengths) {
    cu_q_ = cu_k_ = integers(cumulative);
    if (lengths.empty()) return;
    first_k_ = lengths_k_ = integers(lengths);
    case_.first_k = case_.lengths_k = lengths;
  }

  const Strided& out() const { return out_; }
  const Strided& lse() const { return lse_; }
  Strided& q() { return q_; }

  std::string describe() const {
    const auto text = [](std::int64_t number) { return std::to_string(number); };
    std::string all = std::string(name(case_.type)) + " B " + text(count()) + " q " +
                      text(case_.q_rows) + " k " + text(case_.k_rows) + " heads " +
                      text(case_.heads_q) + "/" + text(case_.heads_k) + " dim " + text(case_.dim) +
                      "/" + text(case_.dim_v);
    if (case_.causal) all += " causal";
    if (case_.window_left >= 0) all += " left " + text(case_.window_left);
    if (case_.window_right >= 0) all += " right " + text(case_.window_right);
    if (case_.softcap > 0) all += " softcap " + std::to_string(case_.softcap);
    if (case_.sinks) all += " sinks";
    if (!case_.cu_q.empty()) all += " cu_q";
    if (!case_.cu_k.empty()) all += " cu_k";
    if (!case_.first_k.empty()) all += " first_k";
    if (!case_.lengths_k.empty()) all += " lengths_k";
    if (case_.page_rows > 0) all += " pages of " + text(case_.page_rows);
    if (case_.bad_pages) all += ", some bad";
    return all;
  }

  // What is wrong with out and lse, or "". An error of out may be twice as large as the largest one
  // of a reference that rounds probabilities and results to the type, and a rounding step.
  std::string wrong() const {
    if (!out_.surroundings_untouched()) return describe() + ": wrote outside out";
    if (!lse_.surroundings_untouched()) return describe() + ": wrote outside lse";
    Strided untouched = out_;  // with poison where results were expected
    const Numbers q(q_), k(k_), v(v_);
    std::vector<Row> rows;
    double error = 0, largest = 0;
    for (std::int64_t b = 0; b < count(); ++b) {
      for (std::int64_t i = 0; i < queries(b); ++i) {
        for (std::int64_t h = 0; h < case_.heads_q; ++h) {
          rows.push_back(expected(q, k, v, b, i, h));
          for (std::int64_t c = 0; c < case_.dim_v; ++c) {
            const double exact = rows.back().exact[at(c)];
            error = std::max(error, std::abs(rows.back().same[at(c)] - exact));
            largest = std::max(largest, std::abs(exact));
            untouched.set_bits(place(case_.cu_q, b, rows.back().row, h, c), ~std::uint64_t{0});
          }
        }
      }
    }
    const bool rest_untouched = std::ranges::all_of(
        untouched.bytes(), [](std::uint8_t byte) { return byte == Strided::poison; });
    if (!rest_untouched) return describe() + ": wrote rows of no sequence";
    const double allowed = 2 * error + spacing(largest, case_.type) + 2e-5;
    for (const Row& row : rows) {
      const std::string found = wrong(row, allowed);
      if (!found.empty()) return describe() + ": " + found;
    }
    return "";
  }

 private:
  // The numbers of an array, one after the other.
  class Numbers {
   public:
    explicit Numbers(const Strided& array) : shape_(array.shape()) {
      for (std::int64_t i = 0; i < array.size(); ++i) {
        all_.push_back(number(array, array.index(i)));
      }
    }
    // Where a row of a head begins; `row` counts from the first row of the batch, or of all.
    const double* at(std::int64_t b, std::int64_t row, std::int64_t h) const {
      const std::size_t d = shape_.size();
      if (d == 4) row += b * shape_[1];
      return all_.data() + (row * shape_[d - 2] + h) * shape_[d - 1];
    }

   private:
    std::vector<std::int64_t> shape_;
    std::vector<double> all_;
  };

  struct Row {
    std::int64_t b = 0, i = 0, row = 0, h = 0;
    std::vector<double> exact{}, same{};
    double lse = -std::numeric_limits<double>::infinity();
  };

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  std::string wrong(const Row& row, double allowed) const {
    const std::string where = " of sequence " + std::to_string(row.b) + ", query " +
                              std::to_string(row.i) + ", head " + std::to_string(row.h);
    for (std::int64_t c = 0; c < case_.dim_v; ++c) {
      const double got = number(out_, place(case_.cu_q, row.b, row.row, row.h, c));
      const double wanted = row.exact[at(c)];
      if (std::abs(got - wanted) <= allowed) continue;
      return "out[" + std::to_string(c) + "]" + where + " is " + std::to_string(got) +
             ", expected " + std::to_string(wanted) + " within " + std::to_string(allowed);
    }
    if (!case_.lse) return "";
    const std::vector<std::int64_t> index =
        case_.cu_q.empty() ? std::vector{row.b, row.h, row.row} : std::vector{row.h, row.row};
    const double got = number(lse_, index);
    const double digits = case_.softcap > 0 && case_.type != DType::f32 ? 2e-3 : 2e-5;
    if (got == row.lse || std::abs(got - row.lse) <= digits * (1 + std::abs(row.lse))) return "";
    return "lse" + where + " is " + std::to_string(got) + ", expected " + std::to_string(row.lse);
  }

  std::int64_t count() const {
    if (!case_.cu_q.empty()) return static_cast<std::int64_t>(case_.cu_q.size()) - 1;
    return case_.sequences;
  }
  std::int64_t queries(std::int64_t b) const {
    return case_.cu_q.empty() ? case_.q_rows : case_.cu_q[at(b + 1)] - case_.cu_q[at(b)];
  }
  std::int64_t first_key(std::int64_t b) const {
    return case_.first_k.empty() ? 0 : case_.first_k[at(b)];
  }
  std::int64_t last_key(std::int64_t b) const {  // and one more
    if (!case_.lengths_k.empty()) return case_.lengths_k[at(b)];
    return case_.cu_k.empty() ? case_.k_rows : case_.cu_k[at(b + 1)] - case_.cu_k[at(b)];
  }

  Strided array(const std::vector<std::int32_t>& cumulative, std::int64_t rows, std::int64_t heads,
                std::int64_t dim) const {
    const std::int64_t each = dim + case_.padding;
    const std::int64_t row = case_.heads_first ? each : heads * each + case_.padding;
    const std::int64_t head = case_.heads_first ? rows * each + case_.padding : each;
    const std::int64_t whole = case_.heads_first ? heads * head : rows * row;
    if (!cumulative.empty()) return {case_.type, {rows, heads, dim}, {row, head, 1}};
    return {case_.type, {case_.sequences, rows, heads, dim}, {whole, row, head, 1}};
  }
  Strided array_of_keys(std::int64_t dim) const {
    if (case_.page_rows == 0) return array(case_.cu_k, case_.k_rows, case_.heads_k, dim);
    const std::int64_t each = dim + case_.padding, heads = case_.heads_k, rows = case_.page_rows;
    const std::int64_t row = case_.heads_first ? each : heads * each + case_.padding;
    const std::int64_t head = case_.heads_first ? rows * each + case_.padding : each;
    const std::int64_t page = case_.heads_first ? heads * head : rows * row;
    return {case_.type, {page_count_, rows, heads, dim}, {page, row, head, 1}};
  }

  // Gives every sequence pages in any order, and keeps one page for nobody. Entries behind its last
  // key are no pages.
  void make_pages() {
    if (case_.page_rows == 0) return;
    most_pages_ = (case_.k_rows + case_.page_rows - 1) / case_.page_rows;
    case_.k_rows = most_pages_ * case_.page_rows;
    page_count_ = case_.sequences * most_pages_ + 1;
    std::vector<std::int32_t> order(at(page_count_));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random_);
    pages_ = Strided(DType::i32, {case_.sequences, most_pages_}, {most_pages_ + 3, 1});
    for (std::int64_t b = 0; b < case_.sequences; ++b) {
      for (std::int64_t i = 0; i < most_pages_; ++i) {
        std::int32_t page = order[at(b * most_pages_ + i)];
        const auto none =
            static_cast<std::int32_t>(i % 2 == 0 ? page_count_ + i : -1 - i * 1000000);
        if (i * case_.page_rows >= last_key(b)) page = none;
        if (case_.bad_pages && random_() % 3 == 0) page = none;
        pages_.set_bits({b, i}, static_cast<std::uint32_t>(page));
      }
    }
  }

  // The page of a row and the row in it; a negative page for none. Without pages, the sequence and
  // the row.
  std::pair<std::int64_t, std::int64_t> key_row(std::int64_t b, std::int64_t row) const {
    if (case_.page_rows == 0) return {b, row};
    const auto page = static_cast<std::int32_t>(
        static_cast<std::uint32_t>(pages_.bits({b, row / case_.page_rows})));
    return {page < page_count_ ? page : -1, row % case_.page_rows};
  }

  static Strided integers(const std::vector<std::int32_t>& values) {
    Strided array(DType::i32, {static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i) {
      array.set_bits({static_cast<std::int64_t>(i)}, static_cast<std::uint32_t>(values[i]));
    }
    return array;
  }
  // The index of an element; `row` counts from the first row of the batch, or of all.
  static std::vector<std::int64_t> place(const std::vector<std::int32_t>& cumulative,
                                         std::int64_t b, std::int64_t row, std::int64_t h,
                                         std::int64_t c) {
    if (cumulative.empty()) return {b, row, h, c};
    return {row, h, c};
  }
  static std::int64_t first_row(const std::vector<std::int32_t>& cumulative, std::int64_t b) {
    return cumulative.empty() ? 0 : cumulative[at(b)];
  }

  void set(Strided& array, const std::vector<std::int64_t>& index, double deviation) {
    std::normal_distribution<double> normal(0, deviation);
    array.set_bits(index, encoded(rounded(normal(random_), array.type()), array.type()));
  }
  static double number(const Strided& array, const std::vector<std::int64_t>& index) {
    return decoded(static_cast<std::uint32_t>(array.bits(index)), array.type());
  }

  void fill(std::int64_t b) {
    for (std::int64_t i = 0; i < queries(b); ++i) {
      for (std::int64_t h = 0; h < case_.heads_q; ++h) {
        for (std::int64_t c = 0; c < case_.dim; ++c) {
          set(q_, place(case_.cu_q, b, first_row(case_.cu_q, b) + i, h, c), case_.size);
        }
      }
    }
    for (std::int64_t j = first_key(b); j < last_key(b); ++j) {
      const auto [batch, row] = key_row(b, first_row(case_.cu_k, b) + j);
      for (std::int64_t h = 0; batch >= 0 && h < case_.heads_k; ++h) {
        for (std::int64_t c = 0; c < case_.dim; ++c) {
          set(k_, place(case_.cu_k, batch, row, h, c), case_.size);
        }
        for (std::int64_t c = 0; c < case_.dim_v; ++c) {
          set(v_, place(case_.cu_k, batch, row, h, c), 1);
        }
      }
    }
  }

  Row expected(const Numbers& q, const Numbers& k, const Numbers& v, std::int64_t b, std::int64_t i,
               std::int64_t h) const {
    Row row{.b = b, .i = i, .row = first_row(case_.cu_q, b) + i, .h = h};
    row.exact.assign(at(case_.dim_v), 0);
    row.same.assign(at(case_.dim_v), 0);
    const std::int64_t head_k = h / (case_.heads_q / case_.heads_k);
    const std::int64_t position = i + last_key(b) - queries(b);
    const std::vector<double> zeros(256);
    std::vector<const double*> values;
    std::vector<double> scores;
    for (std::int64_t j = first_key(b); j < last_key(b); ++j) {
      if (case_.causal && j > position) continue;
      if (case_.window_left >= 0 && j < position - case_.window_left) continue;
      if (case_.window_right >= 0 && j > position + case_.window_right) continue;
      const auto [batch, at_row] = key_row(b, first_row(case_.cu_k, b) + j);
      const bool there = batch >= 0;
      values.push_back(there ? v.at(batch, at_row, head_k) : zeros.data());
      scores.push_back(
          score(q.at(b, row.row, h), there ? k.at(batch, at_row, head_k) : zeros.data()));
    }
    if (values.empty()) return row;
    const double most = *std::ranges::max_element(scores);
    double sum = case_.sinks ? std::exp(number(sinks_, {h}) - most) : 0;
    for (std::size_t j = 0; j < values.size(); ++j) {
      const double p = std::exp(scores[j] - most), p_same = rounded(p, case_.type);
      sum += p;
      for (std::int64_t c = 0; c < case_.dim_v; ++c) {
        const double value = values[j][c];
        row.exact[at(c)] += p * value;
        row.same[at(c)] += p_same * value;
      }
    }
    for (double& each : row.exact) each /= sum;
    for (double& each : row.same) each = rounded(each / sum, case_.type);
    row.lse = most + std::log(sum);
    return row;
  }

  double score(const double* q, const double* k) const {
    double sum = 0;
    for (std::int64_t c = 0; c < case_.dim; ++c) sum += q[c] * k[c];
    sum *= case_.scale != 0 ? case_.scale : 1 / std::sqrt(static_cast<double>(case_.dim));
    return case_.softcap > 0 ? case_.softcap * std::tanh(sum / case_.softcap) : sum;
  }

  AttentionCase case_;
  std::mt19937 random_;
  Strided q_, k_, v_, out_, lse_, sinks_, cu_q_, cu_k_, first_k_, lengths_k_, pages_;
  std::int64_t most_pages_ = 0, page_count_ = 0;  // of a sequence, and of k
};

struct AttentionDims {
  std::int64_t dim = 0, dim_v = 0;
};

// A call of random shape, masks, lengths and layout that fits the rules of GPUs, too.
inline AttentionCase random_attention_case(std::uint32_t seed, std::int64_t most_rows,
                                           const std::vector<AttentionDims>& dims,
                                           const std::vector<DType>& types) {
  std::mt19937 random(seed);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % n); };
  const auto lengths = [&](std::int64_t count) {
    std::vector<std::int32_t> ends{static_cast<std::int32_t>(below(3))};
    for (std::int64_t b = 0; b < count; ++b) {
      const std::int64_t length = below(5) == 0 ? 0 : below(most_rows);
      ends.push_back(ends.back() + static_cast<std::int32_t>(length));
    }
    return ends;
  };
  const AttentionDims dim =
      dims[static_cast<std::size_t>(below(static_cast<std::int64_t>(dims.size())))];
  AttentionCase made{
      .sequences = 1 + below(3),
      .q_rows = 1 + below(most_rows),
      .k_rows = 1 + below(most_rows),
      .heads_k = 1 + below(2),
      .dim = dim.dim,
      .dim_v = dim.dim_v,
      .type = types[static_cast<std::size_t>(below(static_cast<std::int64_t>(types.size())))],
      .causal = below(2) == 0,
      .softcap = below(4) == 0 ? 2.F + static_cast<float>(below(20)) : 0.F,
      .scale = below(4) == 0 ? 0.3F : 0.F,
      .sinks = below(3) == 0,
      .lse = below(4) != 0,
      .heads_first = below(2) == 0,
      .padding = 8 * below(3)};
  made.heads_q = made.heads_k * (1 + below(4));
  made.sink_type = below(2) == 0 ? DType::f32 : DType::bf16;
  if (below(3) == 0) made.window_left = below(most_rows);
  if (below(4) == 0) made.window_right = below(most_rows / 2);
  if (below(3) == 0) {
    made.cu_q = lengths(made.sequences);
    made.q_rows = made.cu_q.back() + below(3);
  }
  if (below(3) == 0) {
    made.cu_k = lengths(made.sequences);
    made.k_rows = made.cu_k.back() + below(3);
  }
  const bool ends = below(3) == 0, begins = below(3) == 0;
  for (std::int64_t b = 0; b < made.sequences; ++b) {
    const auto i = static_cast<std::size_t>(b);
    std::int64_t rows = made.cu_k.empty() ? made.k_rows : made.cu_k[i + 1] - made.cu_k[i];
    if (ends) made.lengths_k.push_back(static_cast<std::int32_t>(rows = below(rows + 1)));
    if (begins) made.first_k.push_back(static_cast<std::int32_t>(below(rows + 1)));
  }
  return made;
}

// The same with k and v in pages, of which `page_rows` names the possible sizes.
inline AttentionCase random_paged_case(std::uint32_t seed, std::int64_t most_rows,
                                       const std::vector<AttentionDims>& dims,
                                       const std::vector<DType>& types,
                                       const std::vector<std::int64_t>& page_rows) {
  AttentionCase made = random_attention_case(seed, most_rows, dims, types);
  std::mt19937 random(seed);
  made.cu_k.clear();
  made.first_k.clear();
  made.lengths_k.clear();
  if (!made.cu_q.empty()) made.sequences = static_cast<std::int64_t>(made.cu_q.size()) - 1;
  made.page_rows = page_rows[random() % page_rows.size()];
  made.k_rows = 1 + static_cast<std::int64_t>(random()) % most_rows;
  made.bad_pages = random() % 4 == 0;
  const bool begins = random() % 4 == 0;
  for (std::int64_t b = 0; b < made.sequences; ++b) {
    made.lengths_k.push_back(static_cast<std::int32_t>(random() % (made.k_rows + 1)));
    if (!begins) continue;
    const auto most = static_cast<std::uint32_t>(made.lengths_k.back()) + 1;
    made.first_k.push_back(static_cast<std::int32_t>(random() % most));
  }
  return made;
}

}  // namespace ps::test
