// The gradient against a dense matrix of weights, and against itself.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "penstock/ops/resample.h"
#include "support/resample_reference.h"
#include "support/sanitized.h"
#include "support/strided.h"

namespace ps::test {
namespace {

class GradientCase {
 public:
  explicit GradientCase(std::uint32_t seed) : random_(seed) {
    const DType types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
    const DType time_types[] = {DType::f32, DType::f64, DType::i64};
    const Outside rules[] = {Outside::clamp, Outside::fill, Outside::extrapolate};
    type_ = types[below(4)];
    time_type_ = time_types[below(3)];
    episodes_ = below(4);
    samples_ = below(12);
    targets_ = below(30);
    columns_ = below(6) == 0 ? below(40) : below(7);
    kind_ = below(3);
    const auto plain = [&] { return Layout{.plain = below(2) == 0}; };
    if (kind_ == 2) {
      std::int64_t row = below(3);
      lengths_ = Strided(DType::i32, {episodes_ + 1}, plain(), random_);
      for (std::int64_t b = 0; b <= episodes_; ++b, row += below(8)) {
        lengths_.set_bits({b}, static_cast<std::uint64_t>(row));
      }
      samples_ = row + below(3);
      times_ = Strided(time_type_, {samples_}, plain(), random_);
      out_ = Strided(type_, {samples_, columns_}, plain(), random_);
    } else {
      lengths_ = Strided(DType::i64, {episodes_}, plain(), random_);
      for (std::int64_t b = 0; b < episodes_; ++b) {
        const bool wrong = below(10) == 0;
        const std::int64_t length = wrong ? samples_ + 1 : below(samples_ + 1);
        lengths_.set_bits({b}, static_cast<std::uint64_t>(length));
      }
      times_ = Strided(time_type_, {episodes_, samples_}, plain(), random_);
      out_ = Strided(type_, {episodes_, samples_, columns_}, plain(), random_);
    }
    for (std::int64_t b = 0; b < episodes_; ++b) {
      double t = static_cast<double>(below(10));
      for (std::int64_t i = 0; i < count_of(b); ++i, t += static_cast<double>(below(4))) {
        const std::int64_t row = begin_of(b) + i;
        times_.set_bits(kind_ == 2 ? std::vector{row} : std::vector{b, row}, time_bits(t));
      }
    }
    at_ = Strided(time_type_, {episodes_, targets_}, plain(), random_);
    for (std::int64_t i = 0; i < at_.size(); ++i) {
      const double t = static_cast<double>(below(200)) / 4 - 3;
      const bool nan = time_type_ != DType::i64 && below(20) == 0;
      at_.set_bits(at_.index(i), time_bits(nan ? NAN : t));
    }
    gradient_ = Strided(type_, {episodes_, targets_, columns_},
                        {.plain = below(2) == 0, .expand = true, .row = true}, random_);
    for (std::int64_t i = 0; i < gradient_.size(); ++i) {
      const double g = static_cast<double>(below(2001)) / 1000 - 1;
      gradient_.set_bits(gradient_.index(i), bits_of_number(g, type_));
    }
    options_ = {.gradient = gradient_.view(),
                .times = times_.view(),
                .at = at_.view(),
                .out = out_.view(),
                .outside = rules[below(3)]};
    if (kind_ == 1) options_.lengths = lengths_.view();
    if (kind_ == 2) options_.offsets = lengths_.view();
  }

  const ResampleGradientOptions& options() const { return options_; }
  const Strided& out() const { return out_; }

  std::string wrong() const {
    std::vector<std::vector<Share>> shares;  // of targets, by episode
    for (std::int64_t b = 0; b < episodes_; ++b) shares.push_back(shares_of(b));
    for (std::int64_t i = 0; i < out_.size(); ++i) {
      const std::vector<std::int64_t> at = out_.index(i);
      long double sum = 0, size = 0;
      for (std::int64_t b = 0; b < episodes_; ++b) {
        if (kind_ != 2 && b != at[0]) continue;
        const std::int64_t sample = kind_ == 2 ? at[0] - begin_of(b) : at[1];
        for (std::int64_t t = 0; t < targets_; ++t) {
          const Share& share = shares[static_cast<std::size_t>(b)][static_cast<std::size_t>(t)];
          const double of_sample = sample == share.first    ? share.of_first
                                   : sample == share.second ? share.of_second
                                                            : 0;
          if (of_sample == 0) continue;
          const long double part = static_cast<long double>(of_sample) *
                                   number(gradient_.bits({b, t, at.back()}), type_);
          sum += part;
          size += std::abs(part);
        }
      }
      // Each addition is rounded in f64 or f32, and the sum once more.
      const long double unit = size_of(type_) == 2 ? 0x1p-24L : 0x1p-53L;
      const double here = number(out_.bits(at), type_);
      const auto about = static_cast<double>(sum);
      const double half = type_ == DType::f64 ? 0 : spacing(about, type_) * 0.51;
      if (!(std::abs(here - sum) <= size * unit * static_cast<long double>(targets_ + 4) + half)) {
        return std::to_string(here) + " is not " + std::to_string(about) + " at element " +
               std::to_string(i);
      }
    }
    return out_.surroundings_untouched() ? "" : "bytes around out were written";
  }

 private:
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % n); }
  std::uint64_t time_bits(double t) const {
    if (time_type_ != DType::i64) return bits_of_number(t, time_type_);
    return static_cast<std::uint64_t>(1'700'000'000'000'000'000 + static_cast<std::int64_t>(t));
  }
  std::int64_t begin_of(std::int64_t b) const {
    return kind_ == 2 ? static_cast<std::int64_t>(lengths_.bits({b})) : 0;
  }
  std::int64_t count_of(std::int64_t b) const {
    if (kind_ == 2) return static_cast<std::int64_t>(lengths_.bits({b + 1})) - begin_of(b);
    if (kind_ == 0) return samples_;
    const auto count = static_cast<std::int64_t>(lengths_.bits({b}));
    return count > samples_ ? 0 : count;
  }

  // What a target's value is made of.
  struct Share {
    std::int64_t first = -1, second = -1;
    double of_first = 0, of_second = 0;
  };

  std::vector<Share> shares_of(std::int64_t b) const {
    std::vector<Moment> times;
    for (std::int64_t i = 0; i < count_of(b); ++i) {
      const std::int64_t row = begin_of(b) + i;
      times.push_back(
          moment(times_.bits(kind_ == 2 ? std::vector{row} : std::vector{b, row}), time_type_));
    }
    std::vector<Share> shares(static_cast<std::size_t>(targets_));
    for (std::int64_t target = 0; target < targets_; ++target) {
      const Moment t = moment(at_.bits({b, target}), time_type_);
      const Around found = around(times, t, options_.outside);
      if (found.missing || (!found.within && options_.outside == Outside::fill)) continue;
      Share& share = shares[static_cast<std::size_t>(target)];
      share = {found.first, found.second, 1, 0};
      if (found.first == found.second) continue;
      share.of_second =
          promised_weight(times[static_cast<std::size_t>(found.first)],
                          times[static_cast<std::size_t>(found.second)], t, time_type_);
      share.of_first = 1 - share.of_second;
    }
    return shares;
  }

  std::mt19937 random_;
  DType type_ = DType::f32, time_type_ = DType::f32;
  std::int64_t episodes_ = 0, samples_ = 0, targets_ = 0, columns_ = 0;
  std::int64_t kind_ = 0;  // of episodes: 1 with lengths, 2 with offsets
  Strided times_, lengths_, at_, gradient_, out_;
  ResampleGradientOptions options_;
};

TEST(ResampleGradient, AgreesWithADenseMatrix) {
  const Stream stream(Device::cpu());
  for (std::uint32_t seed = 1; seed <= random_cases(2000); ++seed) {
    GradientCase call(seed), again(seed);
    resample_gradient(call.options(), stream);
    resample_gradient(again.options(), stream);
    stream.synchronize();
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
    ASSERT_EQ(call.out().bytes(), again.out().bytes()) << "with seed " << seed;
  }
}

// Enough for all threads, wide rows, and one sample that all targets give to.
TEST(ResampleGradient, GivesTheSameBitsAgain) {
  constexpr std::int64_t samples = 300, targets = 4000, columns = 700;
  std::mt19937 random(6);
  std::vector<float> gradient(targets * columns), times(samples), at(targets);
  for (float& each : gradient) each = static_cast<float>(random() % 1000) / 999;
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = static_cast<float>(i);
  for (float& each : at) each = static_cast<float>(random() % 1200) - 600;
  const auto made = [&] {
    std::vector<float> out(samples * columns, NAN);
    const Stream stream(Device::cpu());
    resample_gradient({.gradient = {gradient.data(), DType::f32, {1, targets, columns}},
                       .times = {times.data(), DType::f32, {samples}},
                       .at = {at.data(), DType::f32, {targets}},
                       .out = {out.data(), DType::f32, {1, samples, columns}}},
                      stream);
    stream.synchronize();
    return out;
  };
  const std::vector<float> out = made();
  for (std::size_t column :
       {std::size_t{0}, std::size_t{511}, std::size_t{512}, std::size_t{699}}) {
    double first = 0;
    for (std::size_t t = 0; t < at.size(); ++t) {
      if (at[t] <= 0) first += gradient[t * columns + column];
    }
    EXPECT_EQ(out[column], static_cast<float>(first));
  }
  for (int round = 0; round < 4; ++round) ASSERT_EQ(made(), out);
}

// Rows that two episodes claim are written once, by the first.
TEST(ResampleGradient, StaysWithinItsRowsWhereOffsetsAreWrong) {
  std::vector<std::int32_t> offsets{0, 5, 3, 8, 20, -4};
  std::vector<float> times{0, 1, 2, 3, 4, 5, 6, 7}, at{2}, out(8, NAN), gradient(5, 1);
  const Stream stream(Device::cpu());
  resample_gradient({.gradient = {gradient.data(), DType::f32, {5, 1, 1}},
                     .times = {times.data(), DType::f32, {8}},
                     .offsets = {offsets.data(), DType::i32, {6}},
                     .at = {at.data(), DType::f32, {1}},
                     .out = {out.data(), DType::f32, {8, 1}}},
                    stream);
  stream.synchronize();
  EXPECT_EQ(out, (std::vector<float>{0, 0, 1, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace ps::test
