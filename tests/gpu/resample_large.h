// Large random calls of resample, to run on two devices and compare: sensors of many lengths and
// layouts, times with all that may be in them. A seed is all there is to repeat one.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <vector>

#include "penstock/ops/resample.h"
#include "support/resample_random.h"

namespace ps::test {

class LargeResample {
 public:
  // `whole`: one sensor with one mode whose rows lie one behind the other, mostly in 16-byte
  // vectors.
  LargeResample(std::uint32_t seed, bool whole) : random_(seed) {
    type_ = pick({DType::bf16, DType::f32, DType::f16, DType::f64, DType::i32, DType::u8});
    time_type_ = pick({DType::f32, DType::f64, DType::i64});
    episodes_ = 1 + below(pick({2, 9, 40}));
    targets_ = pick({1, 6, 31, 33, 250, 1500});
    outside_ = pick({Outside::clamp, Outside::fill, Outside::extrapolate});
    const int sensors = whole ? 1 : 2 + below(7);
    for (int i = 0; i < sensors; ++i) add_sensor(whole);
    at_ = Strided(time_type_, {episodes_, targets_});
    const bool sorted = below(3) > 0, wild = below(3) == 0;
    for (std::int64_t b = 0; b < episodes_; ++b) set_targets(b, sorted, wild);
    out_ = Strided(type_, {episodes_, targets_, columns_});
    valid_ = Strided(DType::boolean, {episodes_, targets_, sensors});
  }

  template <class Place>
  ResampleOptions options(const Place& place) {
    ResampleOptions call{.at = place(at_),
                         .out = place(out_),
                         .valid = place(valid_),
                         .outside = outside_,
                         .fill = is_floating(type_) ? -0.5 : 7};
    for (Source& source : sources_) {
      Sensor& sensor = call.sensors.emplace_back(
          Sensor{.values = place(source.values), .times = place(source.times)});
      if (source.ragged) sensor.offsets = place(source.lengths);
      if (source.limited) sensor.lengths = place(source.lengths);
      sensor.mode = source.mode;
      sensor.columns = source.ranges;
    }
    return call;
  }
  const std::vector<std::uint8_t>& out() const { return out_.bytes(); }
  const std::vector<std::uint8_t>& valid() const { return valid_.bytes(); }

 private:
  struct Source {
    Strided values, times, lengths;
    bool ragged = false, limited = false;
    Interpolation mode = Interpolation::linear;
    std::vector<Columns> ranges;
  };

  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint32_t>(n)); }
  double number() { return static_cast<double>(random_()) / 4294967296.0; }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[below(static_cast<int>(from.size()))];
  }
  Interpolation mode() {
    const auto held = pick({Interpolation::nearest, Interpolation::previous, Interpolation::next});
    return is_floating(type_) && below(2) == 0 ? Interpolation::linear : held;
  }
  std::uint64_t time(double share) const {
    if (time_type_ != DType::i64) return bits_of_number(share, time_type_);
    const double most = 9e18;
    if (!std::isfinite(share))
      return static_cast<std::uint64_t>(std::int64_t(share > 0 ? most : -most));
    return static_cast<std::uint64_t>(1'700'000'000'000'000'000 +
                                      static_cast<std::int64_t>(share * 1e10));
  }

  void add_sensor(bool whole) {
    Source& source = sources_.emplace_back();
    const std::int64_t samples = pick({1, 2, 3, 40, 500, 1485, 4000});
    const std::int64_t vector = 16 / static_cast<std::int64_t>(size_of(type_));
    std::int64_t columns = whole && below(4) > 0 ? vector * pick({1, 2, 4, 7, 16, 40})
                                                 : pick({0, 1, 3, 7, 14, 16, 64});
    // About as much as a test has time for.
    while (columns > 1 && episodes_ * (samples + targets_) * columns > 1'000'000) columns /= 2;
    columns_ += columns;
    source.ragged = below(4) == 0;
    source.limited = !source.ragged && below(4) == 0;
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < episodes_; ++b) {
      lengths.push_back(source.ragged || source.limited ? below(static_cast<int>(samples) + 1)
                                                        : samples);
    }
    std::int64_t rows = 0;
    for (const std::int64_t length : lengths) rows += length;
    const Layout layout{.plain = whole || below(2) == 0};
    if (source.ragged) {
      source.values = Strided(type_, {rows, columns}, layout, random_);
      source.times = Strided(time_type_, {rows}, layout, random_);
      source.lengths = Strided(DType::i64, {episodes_ + 1});
    } else {
      source.values = Strided(type_, {episodes_, samples, columns}, layout, random_);
      source.times = Strided(time_type_, {episodes_, samples}, layout, random_);
      source.lengths = Strided(DType::i32, {episodes_});
    }
    if (whole) source.values = Strided(type_, source.values.shape());  // at a boundary
    std::int64_t begin = 0;
    for (std::int64_t b = 0; b < episodes_; ++b) {
      const std::int64_t length = lengths[static_cast<std::size_t>(b)];
      set_times(source, b, begin, length);
      if (source.ragged)
        source.lengths.set_bits({b + 1}, static_cast<std::uint64_t>(begin + length));
      if (source.limited) source.lengths.set_bits({b}, static_cast<std::uint64_t>(length));
      if (source.ragged) begin += length;
    }
    if (source.ragged) source.lengths.set_bits({0}, 0);
    for (std::int64_t i = 0; i < source.values.size(); ++i) {
      source.values.set_bits(source.values.index(i), is_floating(type_)
                                                         ? bits_of_number(number() * 4 - 2, type_)
                                                         : static_cast<std::uint64_t>(random_()));
    }
    source.mode = mode();
    for (std::int64_t at = below(5); !whole && at < columns; at += 1 + below(9)) {
      const std::int64_t end = std::min<std::int64_t>(columns, at + 1 + below(20));
      source.ranges.push_back({.begin = at, .end = end, .mode = mode()});
      at = end;
      if (source.ranges.size() == 3) break;
    }
  }

  void set_times(Source& source, std::int64_t b, std::int64_t begin, std::int64_t length) {
    const int kind = below(4);
    std::vector<double> shares;
    for (std::int64_t i = 0; i < length; ++i) {
      const double even = (static_cast<double>(i) + 0.2 * number()) / static_cast<double>(length);
      shares.push_back(kind == 0   ? number()
                       : kind == 1 ? std::floor(number() * 20) / 20  // some of them the same
                                   : even);
    }
    std::ranges::sort(shares);
    if (kind == 3 && length > 3 && below(4) == 0) {
      shares.front() = -INFINITY;
      shares.back() = INFINITY;
    }
    for (std::int64_t i = 0; i < length; ++i) {
      const std::uint64_t bits = time(shares[static_cast<std::size_t>(i)]);
      if (source.ragged) {
        source.times.set_bits({begin + i}, bits);
      } else {
        source.times.set_bits({b, i}, bits);
      }
    }
  }

  // Within, or going on for as long again.
  void set_targets(std::int64_t b, bool sorted, bool wild) {
    const double reach = pick({1.0, 1.02, 2.0});
    const bool even = below(2) == 0;
    std::vector<double> shares;
    for (std::int64_t t = 0; t < targets_; ++t) {
      shares.push_back(even ? reach * static_cast<double>(t) / static_cast<double>(targets_)
                            : number() * reach - (reach - 1) / 2);
    }
    if (sorted) std::ranges::sort(shares);
    if (!sorted) std::ranges::shuffle(shares, random_);
    for (std::int64_t t = 0; t < targets_; ++t) {
      double share = shares[static_cast<std::size_t>(t)];
      if (wild && below(30) == 0) share = pick({double{NAN}, double{INFINITY}, -double{INFINITY}});
      if (std::isnan(share) && time_type_ == DType::i64) share = 0;
      at_.set_bits({b, t}, time(share));
    }
  }

  std::mt19937 random_;
  DType type_, time_type_;
  std::int64_t episodes_ = 0, targets_ = 0, columns_ = 0;
  Outside outside_ = Outside::clamp;
  std::deque<Source> sources_;
  Strided at_, out_, valid_;
};

}  // namespace ps::test
