// Random calls of resample, small and with everything that may go wrong in them, and what they
// should give. A seed is all there is to repeat one.
#pragma once

#include <deque>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/resample_source.h"

namespace ps::test {

class RandomResample {
 public:
  explicit RandomResample(std::uint32_t seed) : random_(seed) {
    type_ = pick({DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32,
                  DType::u8, DType::boolean, DType::f32, DType::bf16});
    time_type_ = pick({DType::f32, DType::f64, DType::i64});
    episodes_ = below(5);
    targets_ = below(5) == 0 ? below(3) : below(20);
    options_.outside = pick({Outside::clamp, Outside::fill, Outside::extrapolate});
    options_.fill = pick({0.0, 1.0, is_floating(type_) ? 0.1 : 1.0});
    if (is_floating(type_) && below(3) == 0) options_.fill = NAN;
    const std::int64_t sensors = below(4) == 0 ? 1 + below(8) : 1 + below(2);
    for (std::int64_t i = 0; i < sensors; ++i) add_sensor();
    add_targets();
    add_results(sensors);
  }

  const ResampleOptions& options() const { return options_; }

  // The same call elsewhere: `place` makes a copy of an array there, and gives its view.
  template <class Place>
  ResampleOptions placed(const Place& place) {
    ResampleOptions there = options_;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      Sensor& sensor = there.sensors[i];
      sensor.values = place(sources_[i].values);
      sensor.times = place(sources_[i].times);
      if (sources_[i].ragged) sensor.offsets = place(sources_[i].lengths);
      if (sources_[i].limited) sensor.lengths = place(sources_[i].lengths);
    }
    there.at = place(at_);
    there.out = place(out_);
    if (options_.valid.data() != nullptr) there.valid = place(valid_);
    return there;
  }
  const Strided& out() const { return out_; }

  // "" when all of it is right.
  std::string wrong() const {
    std::int64_t first = 0;  // of the sensor's columns
    for (std::size_t sensor = 0; sensor < sources_.size(); ++sensor) {
      for (std::int64_t b = 0; b < episodes_; ++b) {
        const std::vector<Moment> times = sources_[sensor].moments(b);
        for (std::int64_t t = 0; t < targets_; ++t) {
          const std::string found = wrong_row(sensor, times, b, t, first);
          if (!found.empty()) return found;
        }
      }
      first += sources_[sensor].columns;
    }
    if (!out_.surroundings_untouched()) return "bytes around out were written";
    if (!valid_.surroundings_untouched()) return "bytes around valid were written";
    return "";
  }

 private:
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % n); }
  double uniform() { return static_cast<double>(random_()) / 4294967296.0; }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[below(static_cast<std::int64_t>(from.size()))];
  }
  const ResampleSource& random_source() { return sources_[random_() % sources_.size()]; }
  Layout layout() { return {.plain = below(3) == 0, .expand = true}; }
  static std::string text(const std::vector<std::int64_t>& at) {
    std::string all = "(";
    for (const std::int64_t i : at) all += std::to_string(i) + " ";
    return all + ")";
  }

  std::uint64_t random_value() {
    if (!is_floating(type_)) return type_ == DType::boolean ? random_() % 2 : random_();
    if (below(40) == 0)
      return bits_of_number(pick<double>({NAN, INFINITY, -INFINITY, -0.0, 0.0}), type_);
    const double scale = below(5) == 0 ? 1000 : 2;
    return bits_of_number((uniform() - 0.5) * scale, type_);
  }

  // Not before `from`; the same as it, now and then.
  std::uint64_t next_time(std::uint64_t from) {
    if (below(6) == 0) return from;
    const Moment t = moment(from, time_type_);
    if (time_type_ == DType::i64) {
      if (t.ticks > std::numeric_limits<std::int64_t>::max() - 100) return from;
      return static_cast<std::uint64_t>(t.ticks + 1 + below(pick({3, 100})));
    }
    const double next = static_cast<double>(t.value) + uniform() * pick({1.0, 0.001, 100.0});
    return bits_of_number(next, time_type_);
  }

  std::uint64_t first_time() {
    if (time_type_ == DType::i64) {
      return pick({std::uint64_t{1'700'000'000'000'000'000}, std::uint64_t{0},
                   std::uint64_t{1} << 63, (std::uint64_t{1} << 63) - 50});
    }
    return bits_of_number(pick({0.0, -3.5, 1.7e9, 1e-3}), time_type_);
  }

  void fill_times(Strided& times, const std::vector<std::int64_t>& prefix, std::int64_t begin,
                  std::int64_t end) {
    std::uint64_t t = first_time();
    const bool infinite = time_type_ != DType::i64 && below(6) == 0;
    for (std::int64_t i = begin; i < end; ++i) {
      std::vector<std::int64_t> at = prefix;
      at.push_back(i);
      std::uint64_t given = t;
      if (infinite && i == begin) given = bits_of_number(-INFINITY, time_type_);
      if (infinite && i + 1 == end) given = bits_of_number(INFINITY, time_type_);
      times.set_bits(at, given);
      t = next_time(t);
    }
  }

  void add_sensor() {
    ResampleSource& source = sources_.emplace_back();
    const std::int64_t kind = below(4);
    source.ragged = kind == 0;
    source.limited = kind == 1;
    source.samples = below(6) == 0 ? below(3) : below(12);
    source.columns = below(8) == 0 ? below(100) : below(10);
    const DType count_type = pick({DType::i32, DType::i64});
    std::vector<std::int64_t> counts;  // of samples, by episode
    for (std::int64_t b = 0; b < episodes_; ++b) {
      counts.push_back(kind > 1 ? source.samples : below(source.samples + 1));
    }
    if (source.ragged) {
      // Samples before the first episode belong to none.
      std::int64_t row = below(3);
      source.lengths = Strided(count_type, {episodes_ + 1}, {.plain = below(2) == 0}, random_);
      source.lengths.set_bits({0}, static_cast<std::uint64_t>(row));
      std::vector<std::int64_t> begins;
      for (std::int64_t b = 0; b < episodes_; ++b) {
        begins.push_back(row);
        row += counts[static_cast<std::size_t>(b)];
        source.lengths.set_bits({b + 1}, static_cast<std::uint64_t>(row));
      }
      source.samples = row + below(3);
      source.values = Strided(type_, {source.samples, source.columns}, layout(), random_);
      source.times = Strided(time_type_, {source.samples}, {.plain = below(2) == 0}, random_);
      for (std::size_t b = 0; b < begins.size(); ++b) {
        fill_times(source.times, {}, begins[b], begins[b] + counts[b]);
      }
    } else {
      source.values =
          Strided(type_, {episodes_, source.samples, source.columns}, layout(), random_);
      if (source.limited) {
        source.lengths = Strided(count_type, {episodes_}, {.plain = below(2) == 0}, random_);
        for (std::int64_t b = 0; b < episodes_; ++b) {
          // Some are wrong, and then empty.
          const std::int64_t given = below(12) == 0 ? pick({source.samples + 1, std::int64_t{-1}})
                                                    : counts[static_cast<std::size_t>(b)];
          source.lengths.set_bits({b}, static_cast<std::uint64_t>(given));
        }
      }
      if (below(3) == 0) {
        source.times = Strided(time_type_, {source.samples}, {.plain = below(2) == 0}, random_);
        fill_times(source.times, {}, 0, source.samples);
      } else {
        source.times =
            Strided(time_type_, {episodes_, source.samples}, {.plain = below(2) == 0}, random_);
        for (std::int64_t b = 0; b < episodes_; ++b) {
          const bool poisoned = source.limited;  // behind the last sample
          fill_times(source.times, {b}, 0, poisoned ? source.count_of(b) : source.samples);
        }
      }
    }
    for (std::int64_t i = 0; i < source.values.size(); ++i) {
      source.values.set_bits(source.values.index(i), random_value());
    }
    Sensor sensor{.values = source.values.view(), .times = source.times.view()};
    if (source.ragged) sensor.offsets = source.lengths.view();
    if (source.limited) sensor.lengths = source.lengths.view();
    add_modes(sensor, source.columns);
    options_.sensors.push_back(std::move(sensor));
  }

  Interpolation random_mode(std::int64_t columns) {
    const auto held = pick({Interpolation::nearest, Interpolation::previous, Interpolation::next});
    if (!is_floating(type_) || below(3) == 0) return held;
    return columns % 4 == 0 && below(2) == 0 ? Interpolation::slerp : Interpolation::linear;
  }

  void add_modes(Sensor& sensor, std::int64_t columns) {
    sensor.mode =
        is_floating(type_) && below(2) == 0
            ? Interpolation::linear
            : pick({Interpolation::nearest, Interpolation::previous, Interpolation::next});
    std::int64_t begin = below(3);
    while (begin <= columns && sensor.columns.size() < 4 && below(3) != 0) {
      const std::int64_t width = std::min(columns - begin, below(9));
      sensor.columns.push_back(
          {begin, begin + width, random_mode(width), pick({Quaternion::xyzw, Quaternion::wxyz})});
      begin += width + below(2) * below(4);
    }
    std::shuffle(sensor.columns.begin(), sensor.columns.end(), random_);
  }

  void add_targets() {
    const bool shared = below(3) == 0;
    at_ = shared ? Strided(time_type_, {targets_}, {.plain = below(2) == 0}, random_)
                 : Strided(time_type_, {episodes_, targets_}, {.plain = below(2) == 0}, random_);
    const bool sorted = below(2) == 0;
    for (std::int64_t b = 0; b < (shared ? 1 : episodes_); ++b) {
      std::vector<std::uint64_t> all;
      for (std::int64_t i = 0; i < targets_; ++i) all.push_back(random_target(b));
      if (sorted) {
        std::ranges::stable_sort(all, [&](std::uint64_t x, std::uint64_t y) {
          return moment(x, time_type_).value < moment(y, time_type_).value;
        });
      }
      for (std::int64_t i = 0; i < targets_; ++i) {
        at_.set_bits(shared ? std::vector{i} : std::vector{b, i}, all[static_cast<std::size_t>(i)]);
      }
    }
    options_.at = at_.view();
  }

  // Near the samples of some sensor, often at one or in the very middle of two.
  std::uint64_t random_target(std::int64_t episode) {
    const std::vector<Moment> times =
        episodes_ == 0 ? std::vector<Moment>{} : random_source().moments(episode);
    const bool integer = time_type_ == DType::i64;
    if (!integer && below(30) == 0) {
      return bits_of_number(pick<double>({NAN, INFINITY, -INFINITY}), time_type_);
    }
    if (times.empty()) return first_time();
    const std::size_t i = static_cast<std::size_t>(below(static_cast<std::int64_t>(times.size())));
    const Moment& a = times[i];
    const Moment& b = times[std::min(i + 1, times.size() - 1)];
    const std::int64_t how = below(4);
    if (integer) {
      const auto from = static_cast<std::uint64_t>(a.ticks);
      const std::uint64_t gap = static_cast<std::uint64_t>(b.ticks) - from;
      if (how == 0) return from;
      if (how == 1) return from + gap / 2;
      if (how == 2) return from + (gap == 0 ? 0 : random_() % gap);
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(std::clamp<long double>(
          a.value + static_cast<long double>(below(400)) - 200,
          std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max())));
    }
    const auto x = static_cast<double>(a.value), y = static_cast<double>(b.value);
    if (how == 0 || std::isinf(x) || std::isinf(y)) return bits_of_number(x, time_type_);
    if (how == 1) return bits_of_number(x + (y - x) / 2, time_type_);
    if (how == 2) return bits_of_number(x + (y - x) * uniform(), time_type_);
    return bits_of_number(x + (uniform() - 0.5) * 300, time_type_);
  }

  void add_results(std::int64_t sensors) {
    std::int64_t columns = 0;
    for (const ResampleSource& source : sources_) columns += source.columns;
    out_ = Strided(type_, {episodes_, targets_, columns}, {.plain = below(3) == 0, .row = true},
                   random_);
    options_.out = out_.view();
    if (below(2) == 0) return;
    valid_ =
        sensors == 1 && below(2) == 0
            ? Strided(DType::boolean, {episodes_, targets_}, {.plain = false}, random_)
            : Strided(DType::boolean, {episodes_, targets_, sensors}, {.plain = false}, random_);
    options_.valid = valid_.view();
  }

  Moment target(std::int64_t episode, std::int64_t i) const {
    const bool shared = at_.shape().size() == 1;
    return moment(at_.bits(shared ? std::vector{i} : std::vector{episode, i}), time_type_);
  }

  Wanted wanted_fill(double fill) const {
    if (!is_floating(type_)) {
      return {.bits = std::isnan(fill) ? 0 : static_cast<std::uint64_t>(fill)};
    }
    if (std::isnan(fill)) return {.nan = true};
    return {.bits = bits_of_number(fill, type_)};
  }

  // One sensor's part of a row, which begins at column `first`.
  std::string wrong_row(std::size_t sensor, const std::vector<Moment>& times, std::int64_t episode,
                        std::int64_t t, std::int64_t first) const {
    const Moment wanted_time = target(episode, t);
    const Around found = around(times, wanted_time, options_.outside);
    for (std::int64_t column = 0; column < sources_[sensor].columns; ++column) {
      const std::uint64_t bits = out_.bits({episode, t, first + column});
      const Wanted wanted = wanted_at(sensor, times, wanted_time, found, episode, column);
      if (!fits(wanted, bits, type_)) {
        return std::string(name(type_)) + " out" + text({episode, t, first + column}) + " is " +
               std::to_string(bits) + " in bits, not " + in_words(wanted, type_);
      }
    }
    if (options_.valid.data() == nullptr) return "";
    std::vector<std::int64_t> at{episode, t};
    if (valid_.shape().size() == 3) at.push_back(static_cast<std::int64_t>(sensor));
    return valid_.bits(at) == (found.within ? 1U : 0U) ? "" : "valid" + text(at) + " is wrong";
  }

  Wanted wanted_at(std::size_t number, const std::vector<Moment>& times, const Moment& t,
                   const Around& found, std::int64_t episode, std::int64_t column) const {
    const ResampleSource& source = sources_[number];
    const Sensor& sensor = options_.sensors[number];
    Interpolation mode = sensor.mode;
    std::int64_t begin = 0;  // of the range, for its quaternions
    for (const Columns& range : sensor.columns) {
      if (column < range.begin || column >= range.end) continue;
      mode = range.mode;
      begin = range.begin;
    }
    const auto value = [&](std::int64_t i, std::int64_t of_column) {
      const std::int64_t row = source.begin_of(episode) + i;
      return source.values.bits(source.ragged ? std::vector{row, of_column}
                                              : std::vector{episode, row, of_column});
    };
    const auto copy = [&](std::int64_t i) { return Wanted{.bits = value(i, column)}; };
    if (found.missing) return wanted_fill(is_floating(type_) ? NAN : options_.fill);
    if (!found.within && options_.outside == Outside::fill) return wanted_fill(options_.fill);
    if (found.first == found.second) return copy(found.first);
    const bool blends = mode == Interpolation::linear || mode == Interpolation::slerp;
    if (!found.within && !blends) return copy(found.before ? found.first : found.second);
    if (mode == Interpolation::previous) return copy(found.first);
    if (mode == Interpolation::next) return copy(found.second);
    const Moment& a = times[static_cast<std::size_t>(found.first)];
    const Moment& b = times[static_cast<std::size_t>(found.second)];
    if (mode == Interpolation::nearest) {
      return copy(is_nearer(a, b, t, time_type_) ? found.second : found.first);
    }
    if (std::isinf(b.value)) return copy(found.first);
    if (std::isinf(a.value)) return copy(found.second);
    const double w = promised_weight(a, b, t, time_type_);
    if (w == 0) return copy(found.first);
    if (mode == Interpolation::linear) {
      return wanted_linear(value(found.first, column), value(found.second, column), w, type_);
    }
    const std::int64_t quaternion = begin + (column - begin) / 4 * 4;
    std::vector<std::uint64_t> first, second;
    for (std::int64_t part = 0; part < 4; ++part) {
      first.push_back(value(found.first, quaternion + part));
      second.push_back(value(found.second, quaternion + part));
    }
    return wanted_slerp(first, second, static_cast<std::size_t>(column - quaternion), w, type_);
  }

  std::mt19937 random_;
  DType type_ = DType::f32, time_type_ = DType::f32;
  std::int64_t episodes_ = 0, targets_ = 0;
  std::deque<ResampleSource> sources_;  // whose views options_ has
  Strided at_, out_, valid_;
  ResampleOptions options_;
};

}  // namespace ps::test
