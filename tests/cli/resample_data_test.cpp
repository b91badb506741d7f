// What the resample ladder computes on, and the bytes that its limit counts.
#include "resample/support/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace {

using ladder::resample::Clock;
using ladder::resample::Data;
using ladder::resample::least_bytes;
using ladder::resample::make_data;
using ladder::resample::Shape;

// Of rows with these columns at times 0, 1, 2 and 3, in one episode; without times and targets.
std::size_t bytes_of_rows(unsigned columns, const std::vector<float>& at) {
  const Data data{.shape = {1, 4, static_cast<unsigned>(at.size()), columns},
                  .values = std::vector<std::uint16_t>(std::size_t{4} * columns),
                  .times = {0, 1, 2, 3},
                  .at = at};
  return least_bytes(data) - 4 * (4 + at.size()) - at.size() * columns * 2;
}

TEST(ResampleData, CountsTheRowsThatTargetsReferToOnce) {
  EXPECT_EQ(bytes_of_rows(16, {0.5F}), 2 * 32u);
  EXPECT_EQ(bytes_of_rows(16, {0.5F, 0.25F}), 2 * 32u) << "the same rows";
  EXPECT_EQ(bytes_of_rows(16, {2.5F, 0.5F, 1.5F}), 4 * 32u);
  EXPECT_EQ(bytes_of_rows(16, {1.0F}), 32u) << "a sample's very time takes no other";
  EXPECT_EQ(bytes_of_rows(16, {-5.0F, 9.0F}), 2 * 32u) << "the first and the last";
}

TEST(ResampleData, CountsWholeSectorsAndSharedOnesOnce) {
  EXPECT_EQ(bytes_of_rows(1, {1.0F}), 32u);
  EXPECT_EQ(bytes_of_rows(8, {0.5F}), 32u) << "two rows in one sector";
  EXPECT_EQ(bytes_of_rows(8, {1.5F}), 2 * 32u) << "two rows in two";
  EXPECT_EQ(bytes_of_rows(24, {1.0F}), 2 * 32u) << "bytes 48 to 96";
  EXPECT_EQ(bytes_of_rows(24, {0.5F}), 3 * 32u) << "bytes 0 to 96";
}

TEST(ResampleData, EpisodesShareSectorsToo) {
  const Data data{.shape = {2, 1, 1, 8},
                  .values = std::vector<std::uint16_t>(16),
                  .times = {0, 0},
                  .at = {0, 0}};
  EXPECT_EQ(least_bytes(data), 32u + 4 * 4 + 2 * 16);
}

TEST(ResampleData, TimesAreSortedAndTargetsLieWithin) {
  constexpr Shape shape{3, 50, 20, 4};
  for (const Clock clock : {Clock::regular, Clock::random}) {
    SCOPED_TRACE(name(shape, clock));
    const Data data = make_data(shape, clock);
    ASSERT_EQ(data.values.size(), 3u * 50 * 4);
    ASSERT_EQ(data.times.size(), 3u * 50);
    ASSERT_EQ(data.at.size(), 3u * 20);
    for (std::ptrdiff_t episode = 0; episode < 3; ++episode) {
      const auto times = data.times.begin() + episode * 50, at = data.at.begin() + episode * 20;
      EXPECT_TRUE(std::is_sorted(times, times + 50));
      EXPECT_TRUE(std::is_sorted(at, at + 20));
      EXPECT_GE(at[0], -0.1F / 50);
      EXPECT_LE(at[19], 1.0F);
      if (clock == Clock::random) continue;
      for (int i = 0; i < 50; ++i) {
        EXPECT_NEAR(times[i] * 50, static_cast<float>(i), 0.1001F) << "a tenth of a step";
      }
      EXPECT_EQ(at[0], times[0]);
      EXPECT_NEAR(at[19], times[49], 1e-5);
    }
    EXPECT_EQ(make_data(shape, clock).values, data.values) << "the same every time";
  }
}

TEST(ResampleData, TheReferenceIsBetweenTheSamples) {
  const Data data{.shape = {1, 3, 4, 1},
                  .values = {0x3F80, 0x4000, 0x4080},  // 1, 2 and 4
                  .times = {0, 1, 2},
                  .at = {1.5F, -1, 1, 7}};
  EXPECT_EQ(expected(data), (std::vector<std::uint16_t>{0x4040, 0x3F80, 0x4000, 0x4080}));
}

TEST(ResampleData, NamesSayWhatIsNotUsual) {
  EXPECT_EQ(name({256, 500, 256, 256}, Clock::regular), "256, 500 to 256, 256, regular");
  EXPECT_EQ(name({512, 1000, 500, 64, ps::DType::f32}, Clock::regular),
            "512, 1000 to 500, 64 f32, regular");
  EXPECT_EQ(name({256, 1000, 256, 256, ps::DType::bf16, true}, Clock::random),
            "256, 50-1000 to 256, 256, random");
}

TEST(ResampleData, CountsAnEpisodesOwnTimesAndItsLength) {
  const Data data{.shape = {2, 4, 1, 16, ps::DType::f32, true},
                  .values = std::vector<std::uint16_t>(std::size_t{2} * 4 * 32),
                  .times = {0, 1, NAN, NAN, 0, 1, 2, NAN},
                  .at = {5, 0.5F},
                  .lengths = {2, 3}};
  EXPECT_EQ(least_bytes(data), 3 * 64u + 4 * (2 + 3) + 4 * 2 + 4 * 2 + 2 * 64);
}

TEST(ResampleData, RaggedEpisodesHaveTimesOfTheirOwn) {
  constexpr Shape shape{40, 200, 20, 3, ps::DType::f32, true};
  for (const Clock clock : {Clock::regular, Clock::random}) {
    SCOPED_TRACE(name(shape, clock));
    const Data data = make_data(shape, clock);
    ASSERT_EQ(data.lengths.size(), 40u);
    ASSERT_EQ(data.times.size(), 40u * 200);
    ASSERT_EQ(data.values.size(), 40u * 200 * 3 * 2);
    const auto [least, most] = std::ranges::minmax(data.lengths);
    EXPECT_GE(least, 50);
    EXPECT_LE(most, 200);
    EXPECT_GT(most - least, 50);
    for (std::size_t episode = 0; episode < 40; ++episode) {
      const float* const times = data.times.data() + episode * 200;
      const float* const at = data.at.data() + episode * 20;
      const unsigned own = data.samples_of(episode);
      EXPECT_TRUE(std::is_sorted(times, times + own));
      EXPECT_TRUE(std::all_of(times + own, times + 200, [](float t) { return std::isnan(t); }));
      if (clock == Clock::random) continue;
      EXPECT_EQ(at[0], times[0]);
      EXPECT_NEAR(at[19], times[own - 1], 1e-5);
    }
    const std::vector<std::uint16_t> out = expected(data);
    ASSERT_EQ(out.size(), 40u * 20 * 3 * 2);
    for (std::size_t i = 0; i < out.size(); i += 2) {
      const auto x = std::bit_cast<float>(std::uint32_t{out[i + 1]} << 16 | out[i]);
      ASSERT_LE(std::abs(x), 1.0F) << i / 2 << " is made of what is not there";
    }
    EXPECT_EQ(make_data(shape, clock).lengths, data.lengths) << "the same every time";
  }
}

TEST(ResampleData, TheReferenceOfF32IsRoundedOnce) {
  const auto bits = std::bit_cast<std::uint32_t>(0.1F);
  const Data data{
      .shape = {1, 2, 1, 1, ps::DType::f32},
      .values = {0, 0, static_cast<std::uint16_t>(bits), static_cast<std::uint16_t>(bits >> 16)},
      .times = {0, 3},
      .at = {1}};
  const auto right =
      std::bit_cast<std::uint32_t>(static_cast<float>((1.0 / 3.0) * static_cast<double>(0.1F)));
  EXPECT_EQ(expected(data), (std::vector<std::uint16_t>{static_cast<std::uint16_t>(right),
                                                        static_cast<std::uint16_t>(right >> 16)}));
}

}  // namespace
