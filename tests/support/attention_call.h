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
#include "support/random_numbers.h"
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
  double sink_size = 1;  // standard deviation of sinks
  bool lse = true;
  std::vector<std::int32_t> cu_q{}, cu_k{}, first_k{}, lengths_k{};  // empty: none
  std::int64_t page_rows = 0;  // of the pages in which k and v are stored; 0: not in pages
  bool bad_pages = false;      // some entries of the table are no pages

  bool heads_first = false;  // stored as (B, H, S, D)
  std::int64_t padding = 0;  // elements between rows
  double size = 1;           // standard deviation of q and k

  // For large calls: wrong() asks the formula for some rows of every 7th head only, and the others
  // need be finite only.
  bool sampled = false;
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
    for (std::int64_t h = 0; h < case_.heads_q; ++h) {
      sinks_.set_bits({h}, drawn(case_.sink_type, case_.sink_size));
    }
    cu_q_ = integers(case_.cu_q);
    cu_k_ = integers(case_.cu_k);
    first_k_ = integers(case_.first_k);
    lengths_k_ = integers(case_.lengths_k);
    fill();
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

  // The same of the arrays of padding alone, if the call has them; and pages of any number.
  void spoil_padding(const std::vector<std::int32_t>& first,
                     const std::vector<std::int32_t>& lengths) {
    if (!case_.first_k.empty()) first_k_ = integers(case_.first_k = first);
    if (!case_.lengths_k.empty()) lengths_k_ = integers(case_.lengths_k = lengths);
    for (std::int64_t i = 0; case_.page_rows > 0 && i < pages_.size(); i += 2) {
      pages_.set_bits(pages_.index(i), random_());
    }
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
    if (case_.sinks) all += " sinks of size " + std::to_string(case_.sink_size);
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
    const Numbers k(k_), v(v_);
    std::vector<Row> rows;
    double error = 0, largest = 0;
    for (const Row& each : all_rows()) {
      if (case_.sampled && !is_written(each)) {
        return describe() + ": the result" + where(each) + " was not written or is not finite";
      }
      std::vector<std::int64_t> index = place(case_.cu_q, each.b, each.row, each.h, 0);
      for (; index.back() < case_.dim_v; ++index.back()) {
        untouched.set_bits(index, ~std::uint64_t{0});
      }
      if (!is_checked(each)) continue;
      rows.push_back(expected(k, v, each));
      for (std::int64_t c = 0; c < case_.dim_v; ++c) {
        const double exact = rows.back().exact[at(c)];
        error = std::max(error, std::abs(rows.back().same[at(c)] - exact));
        largest = std::max(largest, std::abs(exact));
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

  // Where the results of the same call by another kernel differ by more than the rounding of both,
  // or "". A probability of relative error e changes a sum by at most e times the largest value,
  // which is below 5.
  std::string differs(const AttentionCall& other) const {
    const double unit = spacing(1, case_.type);
    for (const Row& row : all_rows()) {
      const std::vector<double> own = results(row), others = other.results(row);
      for (std::size_t c = 0; c < own.size(); ++c) {
        const double allowed = (5 + std::abs(others[c])) * unit;
        if (std::abs(own[c] - others[c]) <= allowed) continue;
        return describe() + ": out[" + std::to_string(c) + "]" + where(row) + " is " +
               std::to_string(own[c]) + ", by another kernel " + std::to_string(others[c]);
      }
      const double found = number(lse_, lse_index(row)),
                   wanted = number(other.lse_, lse_index(row));
      if (!case_.lse || is_lse(found, wanted)) continue;
      return describe() + ": lse" + where(row) + " is " + std::to_string(found) +
             ", by another kernel " + std::to_string(wanted);
    }
    return "";
  }

 private:
  // The numbers of an array, one after the other.
  class Numbers {
   public:
    explicit Numbers(const Strided& array) : shape_(array.shape()) {
      all_.reserve(static_cast<std::size_t>(array.size()));
      for (std::int64_t i = 0; i < array.size(); i += shape_.back()) {
        std::vector<std::int64_t> index = array.index(i);
        for (; index.back() < shape_.back(); ++index.back()) all_.push_back(number(array, index));
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

  static std::string where(const Row& row) {
    return " of sequence " + std::to_string(row.b) + ", query " + std::to_string(row.i) +
           ", head " + std::to_string(row.h);
  }

  // Of all sequences, without results.
  std::vector<Row> all_rows() const {
    std::vector<Row> rows;
    for (std::int64_t b = 0; b < count(); ++b) {
      for (std::int64_t i = 0; i < queries(b); ++i) {
        for (std::int64_t h = 0; h < case_.heads_q; ++h) {
          rows.push_back({.b = b, .i = i, .row = first_row(case_.cu_q, b) + i, .h = h});
        }
      }
    }
    return rows;
  }

  // With `sampled`: the first and the last row of every 7th head, and at most 7 between them, which
  // are others in every head.
  bool is_checked(const Row& row) const {
    if (!case_.sampled) return true;
    if ((row.b * case_.heads_q + row.h) % 7 != 0) return false;
    const std::int64_t rows = queries(row.b);
    return row.i == 0 || row.i == rows - 1 || (row.i + 3 * row.h) * 7 % rows < 7;
  }

  std::vector<double> results(const Row& row) const {
    std::vector<double> found;
    std::vector<std::int64_t> index = place(case_.cu_q, row.b, row.row, row.h, 0);
    for (; index.back() < case_.dim_v; ++index.back()) found.push_back(number(out_, index));
    return found;
  }
  bool is_written(const Row& row) const {
    return std::ranges::all_of(results(row), [](double x) { return std::isfinite(x); }) &&
           (!case_.lse || !std::isnan(number(lse_, lse_index(row))));
  }
  std::vector<std::int64_t> lse_index(const Row& row) const {
    return case_.cu_q.empty() ? std::vector{row.b, row.h, row.row} : std::vector{row.h, row.row};
  }
  static bool is_lse(double got, double wanted) {
    return got == wanted || std::abs(got - wanted) <= 2e-5 * (1 + std::abs(wanted));
  }

  std::string wrong(const Row& row, double allowed) const {
    const std::vector<double> found = results(row);
    for (std::size_t c = 0; c < found.size(); ++c) {
      if (std::abs(found[c] - row.exact[c]) <= allowed) continue;
      return "out[" + std::to_string(c) + "]" + where(row) + " is " + std::to_string(found[c]) +
             ", expected " + std::to_string(row.exact[c]) + " within " + std::to_string(allowed);
    }
    if (!case_.lse) return "";
    const double got = number(lse_, lse_index(row));
    if (is_lse(got, row.lse)) return "";
    return "lse" + where(row) + " is " + std::to_string(got) + ", expected " +
           std::to_string(row.lse);
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

  std::uint32_t drawn(DType type, double deviation) {
    std::normal_distribution<double> normal(0, deviation);
    return encoded(rounded(normal(random_), type), type);
  }
  static double number(const Strided& array, const std::vector<std::int64_t>& index) {
    return decoded(static_cast<std::uint32_t>(array.bits(index)), array.type());
  }

  void fill() {
    const RandomNumbers sized(case_.type, case_.size, random_), plain(case_.type, 1, random_);
    const auto fill_row = [&](Strided& array, const RandomNumbers& numbers,
                              const std::vector<std::int64_t>& first) {
      array.fill_row(first, [&] { return numbers(random_); });
    };
    for (std::int64_t b = 0; b < count(); ++b) {
      for (std::int64_t i = 0; i < queries(b); ++i) {
        for (std::int64_t h = 0; h < case_.heads_q; ++h) {
          fill_row(q_, sized, place(case_.cu_q, b, first_row(case_.cu_q, b) + i, h, 0));
        }
      }
      for (std::int64_t j = first_key(b); j < last_key(b); ++j) {
        const auto [batch, row] = key_row(b, first_row(case_.cu_k, b) + j);
        for (std::int64_t h = 0; batch >= 0 && h < case_.heads_k; ++h) {
          fill_row(k_, sized, place(case_.cu_k, batch, row, h, 0));
          fill_row(v_, plain, place(case_.cu_k, batch, row, h, 0));
        }
      }
    }
  }

  Row expected(const Numbers& k, const Numbers& v, Row row) const {
    const std::int64_t b = row.b, h = row.h;
    row.exact.assign(at(case_.dim_v), 0);
    row.same.assign(at(case_.dim_v), 0);
    const std::int64_t head_k = h / (case_.heads_q / case_.heads_k);
    const std::int64_t position = row.i + last_key(b) - queries(b);
    const std::vector<double> zeros(256);
    std::vector<double> query;
    std::vector<std::int64_t> index = place(case_.cu_q, b, row.row, h, 0);
    for (; index.back() < case_.dim; ++index.back()) query.push_back(number(q_, index));
    std::vector<const double*> values;
    std::vector<double> scores;
    for (std::int64_t j = first_key(b); j < last_key(b); ++j) {
      if (case_.causal && j > position) continue;
      if (case_.window_left >= 0 && j < position - case_.window_left) continue;
      if (case_.window_right >= 0 && j > position + case_.window_right) continue;
      const auto [batch, at_row] = key_row(b, first_row(case_.cu_k, b) + j);
      const bool there = batch >= 0;
      values.push_back(there ? v.at(batch, at_row, head_k) : zeros.data());
      scores.push_back(score(query.data(), there ? k.at(batch, at_row, head_k) : zeros.data()));
    }
    if (values.empty()) return row;
    const double most = *std::ranges::max_element(scores);
    double sum = 0;
    double *const exact = row.exact.data(), *const same = row.same.data();
    for (std::size_t j = 0; j < values.size(); ++j) {
      const double p = std::exp(scores[j] - most), p_same = rounded(p, case_.type);
      const double* const value = values[j];
      sum += p;
      for (std::int64_t c = 0; c < case_.dim_v; ++c) {
        exact[c] += p * value[c];
        same[c] += p_same * value[c];
      }
    }
    const double sink = case_.sinks ? number(sinks_, {h}) : -INFINITY;
    const double highest = std::max(most, sink), shrink = std::exp(most - highest);
    sum = sum * shrink + std::exp(sink - highest);
    for (double& each : row.exact) each *= shrink / sum;
    for (double& each : row.same) each = rounded(each * shrink / sum, case_.type);
    row.lse = highest + std::log(sum);
    return row;
  }

  double score(const double* q, const double* k) const {
    double parts[4]{};  // of sums, which do not wait for each other; D is a multiple of 8
    for (std::int64_t c = 0; c < case_.dim; c += 4) {
      for (std::int64_t i = 0; i < 4; ++i) parts[i] += q[c + i] * k[c + i];
    }
    double sum = parts[0] + parts[1] + parts[2] + parts[3];
    sum *= case_.scale != 0 ? case_.scale : 1 / std::sqrt(static_cast<double>(case_.dim));
    return case_.softcap > 0 ? case_.softcap * std::tanh(sum / case_.softcap) : sum;
  }

  AttentionCase case_;
  std::mt19937 random_;
  Strided q_, k_, v_, out_, lse_, sinks_, cu_q_, cu_k_, first_k_, lengths_k_, pages_;
  std::int64_t most_pages_ = 0, page_count_ = 0;  // of a sequence, and of k
};

}  // namespace ps::test
