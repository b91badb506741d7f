#include "measure/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "penstock/base/error.h"
#include "penstock/measure/timing.h"

namespace ps::detail {
namespace {

void no_tick(double) {}

TEST(Median, IsTheMiddleOrTheMeanOfTheTwo) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({9, 9, 1, 1, 1}), 1);
}

constexpr SamplingPlan plan{
    .repetitions = 10, .seconds = 1, .least_bytes = 40, .most_bytes = 1000, .granule = 20};

TEST(RepetitionBytes, FitTheTime) {
  // 40 bytes took 0.02 s, so a tenth of a second moves 200.
  EXPECT_EQ(repetition_bytes(plan, 40, 0.02), 200u);
  EXPECT_EQ(repetition_bytes(plan, 40, 0.0199), 200u);  // 201, but in twenties
}

TEST(RepetitionBytes, StayWithinBounds) {
  EXPECT_EQ(repetition_bytes(plan, 40, 100), 40u);
  EXPECT_EQ(repetition_bytes(plan, 40, 1e-9), 1000u);
  EXPECT_EQ(repetition_bytes(plan, 40, 1e-300), 1000u);
}

TEST(RepetitionBytes, HoldForRandomPlans) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto upto = [&](std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(1, most)(random);
  };
  for (int i = 0; i < 1000; ++i) {
    SamplingPlan any{.repetitions = static_cast<int>(upto(50)), .seconds = 1, .granule = upto(64)};
    any.least_bytes = any.granule * upto(100);
    any.most_bytes = any.least_bytes + any.granule * upto(1000);
    const double warm = std::pow(10.0, static_cast<double>(upto(20)) - 10);
    const std::size_t bytes = repetition_bytes(any, any.least_bytes, warm);
    EXPECT_GE(bytes, any.least_bytes);
    EXPECT_LE(bytes, any.most_bytes);
    EXPECT_EQ(bytes % any.granule, 0u);
  }
}

TEST(Sample, TakesTheMedianAndCountsTheBytes) {
  // Every third repetition is ten times slower; the median does not mind.
  int calls = 0;
  const Rate rate = sample(
      plan, 2,
      [&](std::size_t bytes) {
        const double seconds = static_cast<double>(bytes) / 500;
        return ++calls % 3 == 0 ? 10 * seconds : seconds;
      },
      no_tick);
  EXPECT_EQ(calls, 12);  // two to warm up
  EXPECT_EQ(rate.repetitions, 10);
  EXPECT_EQ(rate.bytes, 2u * 40u);
  EXPECT_DOUBLE_EQ(rate.bytes_per_second, 1000);
}

TEST(Sample, TellsHowFarItIs) {
  std::vector<double> seen;
  sample(plan, 1, [](std::size_t) { return 0.1; }, [&](double done) { seen.push_back(done); });
  ASSERT_EQ(seen.size(), 11u);
  EXPECT_EQ(seen.front(), 0);
  EXPECT_DOUBLE_EQ(seen.back(), 0.9);
}

TEST(Sample, StopsWhenTheTickThrows) {
  int moves = 0;
  const auto move = [&](std::size_t) { return ++moves, 0.1; };
  const auto tick = [](double done) {
    if (done > 0.25) throw Cancelled();
  };
  EXPECT_THROW(sample(plan, 1, move, tick), Cancelled);
  EXPECT_EQ(moves, 2 + 3);
}

TEST(Sample, RefusesAClockThatStandsStill) {
  for (const double seconds : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW(sample(
                     plan, 1, [&](std::size_t) { return seconds; }, no_tick),
                 Unsupported)
        << seconds;
  }
}

}  // namespace
}  // namespace ps::detail
