// What resample promises, promise by promise.
#include "penstock/ops/resample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "penstock/host/event.h"

namespace ps::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
constexpr DType type_of() {
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::uint16_t>) return DType::bf16;
  return DType::u8;
}

// One episode of one column.
template <class Value, class Time>
std::vector<Value> one_column(std::vector<Time> times, std::vector<Value> values,
                              std::vector<Time> at, Interpolation mode, Outside outside = {},
                              double fill = NAN) {
  const auto samples = static_cast<std::int64_t>(times.size());
  const auto targets = static_cast<std::int64_t>(at.size());
  std::vector<Value> out(at.size(), Value{77});
  const Stream stream(Device::cpu());
  resample({.sensors = {{.values = {values.data(), type_of<Value>(), {1, samples, 1}},
                         .times = {times.data(), type_of<Time>(), {samples}},
                         .mode = mode}},
            .at = {at.data(), type_of<Time>(), {targets}},
            .out = {out.data(), type_of<Value>(), {1, targets, 1}},
            .outside = outside,
            .fill = fill},
           stream);
  stream.synchronize();
  return out;
}

using Doubles = std::vector<double>;

TEST(ResampleModes, BetweenTwoSamples) {
  const Doubles times{0, 1, 3}, values{10, 20, 40}, at{0.25, 0.5, 0.75, 2.5, 1};
  const auto made = [&](Interpolation mode) { return one_column(times, values, at, mode); };
  EXPECT_EQ(made(Interpolation::linear), (Doubles{12.5, 15, 17.5, 35, 20}));
  EXPECT_EQ(made(Interpolation::nearest), (Doubles{10, 10, 20, 40, 20}));
  EXPECT_EQ(made(Interpolation::previous), (Doubles{10, 10, 10, 20, 20}));
  EXPECT_EQ(made(Interpolation::next), (Doubles{20, 20, 20, 40, 20}));
}

TEST(ResampleModes, OfSamplesThatShareATimeTheLastIsAtIt) {
  const Doubles times{0, 0, 1, 1, 1, 2}, values{9, 10, 98, 99, 20, 30}, at{-1, 0, 0.5, 1, 1.5};
  EXPECT_EQ(one_column(times, values, at, Interpolation::linear), (Doubles{9, 10, 54, 20, 25}));
  EXPECT_EQ(one_column(times, values, at, Interpolation::next), (Doubles{9, 10, 98, 20, 30}));
  EXPECT_EQ(one_column(times, values, at, Interpolation::linear, Outside::extrapolate),
            (Doubles{9, 10, 54, 20, 25}));
}

TEST(ResampleModes, Outside) {
  const Doubles times{1, 2, 4}, values{10, 20, 60}, at{0, 1, 4, 5};
  EXPECT_EQ(one_column(times, values, at, Interpolation::linear), (Doubles{10, 10, 60, 60}));
  EXPECT_EQ(one_column(times, values, at, Interpolation::linear, Outside::fill, -7),
            (Doubles{-7, 10, 60, -7}));
  EXPECT_EQ(one_column(times, values, at, Interpolation::linear, Outside::extrapolate),
            (Doubles{0, 10, 60, 80}));
  for (const auto mode : {Interpolation::nearest, Interpolation::previous, Interpolation::next}) {
    EXPECT_EQ(one_column(times, values, at, mode, Outside::extrapolate), (Doubles{10, 10, 60, 60}));
  }
  // Nothing to draw a line through.
  EXPECT_EQ(one_column(Doubles{1, 1}, Doubles{3, 4}, Doubles{0, 2}, Interpolation::linear,
                       Outside::extrapolate),
            (Doubles{3, 4}));
}

TEST(ResampleModes, InfinityIsFartherThanAnyOther) {
  const Doubles times{-infinity, 0, infinity}, values{1, 2, 3},
      at{-infinity, -1e308, 0, 1e308, infinity};
  EXPECT_EQ(one_column(times, values, at, Interpolation::linear), (Doubles{1, 2, 2, 2, 3}));
  EXPECT_EQ(one_column(times, values, at, Interpolation::nearest), (Doubles{1, 2, 2, 2, 3}));
  EXPECT_EQ(one_column(times, values, at, Interpolation::previous), (Doubles{1, 1, 2, 2, 3}));
  const Doubles ends{-infinity, infinity}, two{1, 2};
  EXPECT_EQ(one_column(ends, two, Doubles{5}, Interpolation::linear), Doubles{1});
  EXPECT_EQ(one_column(ends, two, Doubles{5}, Interpolation::nearest), Doubles{1});
  // A line that goes through infinity is level.
  EXPECT_EQ(one_column(Doubles{-infinity, 0}, two, Doubles{5}, Interpolation::linear,
                       Outside::extrapolate),
            Doubles{2});
  EXPECT_EQ(one_column(Doubles{0, infinity}, two, Doubles{-5}, Interpolation::linear,
                       Outside::extrapolate),
            Doubles{1});
}

TEST(ResampleModes, TimesWhoseDifferenceIsNoNumber) {
  const double far = 1.5e308;
  EXPECT_EQ(one_column(Doubles{-far, far}, Doubles{0, 8}, Doubles{-far / 2, 0, far / 2},
                       Interpolation::linear),
            (Doubles{2, 4, 6}));
  EXPECT_EQ(
      one_column(Doubles{-far, far}, Doubles{0, 8}, Doubles{0, 1e300}, Interpolation::nearest),
      (Doubles{0, 8}));
}

// Differences that round to the same number are not the same.
TEST(ResampleModes, NearestIsExact) {
  const double a = 0x1p-60, t = 1, b = 2;
  EXPECT_EQ(one_column(Doubles{a, b}, Doubles{1, 2}, Doubles{t}, Interpolation::nearest),
            Doubles{1});
  EXPECT_EQ(one_column(Doubles{-a, b}, Doubles{1, 2}, Doubles{t}, Interpolation::nearest),
            Doubles{2});
  EXPECT_EQ(one_column(Doubles{0, b}, Doubles{1, 2}, Doubles{t}, Interpolation::nearest),
            Doubles{1});
}

TEST(ResampleTimes, NanosecondsOfTheEpochDoNotCollapse) {
  using Ticks = std::vector<std::int64_t>;
  const std::int64_t now = 1'763'000'000'123'456'789;
  const Ticks times{now, now + 4, now + 5}, at{now + 1, now + 2, now + 3, now + 4};
  EXPECT_EQ(one_column(times, Doubles{0, 4, 9}, at, Interpolation::linear), (Doubles{1, 2, 3, 4}));
  EXPECT_EQ(one_column(times, Ticks{7, 8, 9}, at, Interpolation::nearest), (Ticks{7, 7, 8, 8}));
  constexpr std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                         high = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(one_column(Ticks{low, high}, Doubles{0, 1}, Ticks{low, 0, high}, Interpolation::linear),
            (Doubles{0, 0.5, 1}));
  EXPECT_EQ(one_column(Ticks{low, high}, Doubles{1, 2}, Ticks{-1, 0, 1}, Interpolation::nearest),
            (Doubles{1, 2, 2}));
}

TEST(ResampleValues, AtASamplesTimeItsBitsWhateverIsBeside) {
  const auto signalling = std::bit_cast<double>(0x7FF0000000000001U);
  const Doubles times{0, 1, 2}, values{NAN, signalling, infinity}, at{1};
  const Doubles out = one_column(times, values, at, Interpolation::linear);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(out[0]), 0x7FF0000000000001U);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(one_column(Doubles{0, 1}, Doubles{-0.0, NAN}, Doubles{0},
                                                    Interpolation::linear)[0]),
            std::uint64_t{1} << 63);
}

TEST(ResampleValues, NothingWanted) {
  const Doubles none = one_column(Doubles{}, Doubles{}, Doubles{1, NAN}, Interpolation::linear);
  EXPECT_TRUE(std::isnan(none[0]) && std::isnan(none[1]));
  using Bytes = std::vector<std::uint8_t>;
  EXPECT_EQ(one_column(Doubles{}, Bytes{}, Doubles{1, NAN}, Interpolation::next), (Bytes{0, 0}));
  EXPECT_EQ(one_column(Doubles{0, 5}, Bytes{1, 2}, Doubles{1, NAN}, Interpolation::next,
                       Outside::clamp, 9),
            (Bytes{2, 9}));
  const Doubles nan = one_column(Doubles{0}, Doubles{3}, Doubles{NAN, 9, -9}, Interpolation::linear,
                                 Outside::fill, 4);
  EXPECT_TRUE(std::isnan(nan[0]));
  EXPECT_EQ(nan[1], 4);
  EXPECT_EQ(nan[2], 4);
}

// Far from the sum that rounding each product would give.
TEST(ResampleValues, AreWithinTheirLastDigit) {
  std::mt19937 random(20261115);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int i = 0; i < 3000; ++i) {
    const double a = uniform(random), b = a + std::abs(uniform(random)) + 1e-3;
    const double t = a + (b - a) * std::abs(uniform(random)), x = uniform(random),
                 y = uniform(random);
    const long double w = (static_cast<long double>(t) - a) / (static_cast<long double>(b) - a);
    const long double exact = x + w * (static_cast<long double>(y) - x);
    const double out =
        one_column(Doubles{a, b}, Doubles{x, y}, Doubles{t}, Interpolation::linear)[0];
    const double unit = std::ldexp(std::max(std::abs(x), std::abs(y)), -52);
    ASSERT_LE(std::abs(out - exact), 4 * unit) << a << " " << b << " " << t;
    const auto p = static_cast<float>(x), q = static_cast<float>(y);
    const long double narrow = p + w * (static_cast<long double>(q) - p);
    const float single =
        one_column(Doubles{a, b}, std::vector{p, q}, Doubles{t}, Interpolation::linear)[0];
    ASSERT_LE(std::abs(single - narrow), std::ldexp(std::abs(narrow), -24) + 1e-14L);
  }
}

TEST(ResampleValues, RotationsTakeTheShorterArc) {
  const float half = std::sqrt(0.5F);
  // A quarter of a turn about z, once with the other sign; then the same rotation twice.
  std::vector<float> values{0, 0, 0, 1, 0, 0, -half, -half, 0, 0, -half, -half}, out(12);
  std::vector<float> times{0, 1, 2}, at{0.5F, 1.5F, -1};
  const Stream stream(Device::cpu());
  resample({.sensors = {{.values = {values.data(), DType::f32, {1, 3, 4}},
                         .times = {times.data(), DType::f32, {1, 3}},
                         .mode = Interpolation::slerp}},
            .at = {at.data(), DType::f32, {1, 3}},
            .out = {out.data(), DType::f32, {1, 3, 4}},
            .outside = Outside::extrapolate},
           stream);
  stream.synchronize();
  const double eighth = M_PI / 8;
  const double wanted[] = {0,
                           0,
                           std::sin(eighth),
                           std::cos(eighth),  //
                           0,
                           0,
                           -half,
                           -half,  //
                           0,
                           0,
                           -std::sin(2 * eighth),
                           std::cos(2 * eighth)};
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], wanted[i], 1e-7) << i;
}

// Without `check`: some samples of the episode, and nothing else is read.
TEST(ResampleTimes, ThatAreWrongGiveSamplesOfTheEpisode) {
  std::mt19937 random(3);
  for (int round = 0; round < 800; ++round) {
    const std::size_t count = 1 + random() % 40;
    Doubles times, values, at;
    for (std::size_t i = 0; i < count; ++i) {
      const double any[] = {NAN, infinity, -infinity, static_cast<double>(random() % 10)};
      times.push_back(any[random() % 8 < 5 ? 3 : random() % 4]);
      values.push_back(static_cast<double>(i));
      at.push_back(static_cast<double>(random() % 12) - 1);
    }
    for (const auto mode : {Interpolation::nearest, Interpolation::previous, Interpolation::next}) {
      for (const double x : one_column(times, values, at, mode, Outside::extrapolate)) {
        ASSERT_TRUE(x >= 0 && x < static_cast<double>(count) && x == std::floor(x));
      }
    }
    one_column(times, values, at, Interpolation::linear, Outside::extrapolate);
  }
}

// Enough for all threads, several sensors, long episodes; the same bits again and again.
TEST(ResampleThreads, GiveTheSameBits) {
  constexpr std::int64_t episodes = 3, samples = 5000, targets = 7001, columns = 33;
  std::mt19937 random(5);
  std::vector<float> values(episodes * samples * columns), times(samples), at(targets);
  for (float& each : values) each = static_cast<float>(random() % 1000);
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = static_cast<float>(i);
  for (float& each : at) each = static_cast<float>(random() % 5000000) / 1000.0F;
  const auto made = [&] {
    std::vector<float> out(episodes * targets * 2 * columns, NAN);
    const Sensor sensor{.values = {values.data(), DType::f32, {episodes, samples, columns}},
                        .times = {times.data(), DType::f32, {samples}}};
    Sensor held = sensor;
    held.mode = Interpolation::previous;
    const Stream stream(Device::cpu());
    resample({.sensors = {sensor, held},
              .at = {at.data(), DType::f32, {targets}},
              .out = {out.data(), DType::f32, {episodes, targets, 2 * columns}}},
             stream);
    stream.synchronize();
    return out;
  };
  const std::vector<float> out = made();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t column = i % (2 * columns), t = i / (2 * columns) % targets,
                      b = i / (2 * columns * targets);
    const auto first = static_cast<std::size_t>(std::min(at[t], 4999.0F));
    const std::size_t second = std::min<std::size_t>(first + 1, samples - 1);
    const double w = at[t] > 4999.0F ? 0 : static_cast<double>(at[t]) - static_cast<double>(first);
    const double x = values[(b * samples + first) * columns + column % columns];
    const double y = values[(b * samples + second) * columns + column % columns];
    ASSERT_EQ(out[i], static_cast<float>(column < columns ? std::fma(w, y - x, x) : x)) << i;
  }
  for (int round = 0; round < 5; ++round) ASSERT_EQ(made(), out);
}

TEST(ResampleOrder, RunsInStreamOrderAndDoesNotBlock) {
  const Device cpu = Device::cpu();
  const Stream first(cpu), second(cpu);
  std::array<double, 2> times{0, 1}, values{};
  std::array<double, 1> at{0.5}, out{};
  const Event written(cpu);
  first.call([&] { values = {2, 4}; });
  first.record(written);
  second.wait(written);
  resample({.sensors = {{.values = {values.data(), DType::f64, {1, 2, 1}},
                         .times = {times.data(), DType::f64, {2}}}},
            .at = {at.data(), DType::f64, {1}},
            .out = {out.data(), DType::f64, {1, 1, 1}}},
           second);
  second.synchronize();
  EXPECT_EQ(out[0], 3);
}

}  // namespace
}  // namespace ps::test
