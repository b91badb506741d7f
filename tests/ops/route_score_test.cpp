// The arithmetic that the CPU and GPUs share.
#include "ops/route/score.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace ps::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// The largest error in units of the last place, at every 101st number of [-87, -2^-30].
TEST(RouteScore, ExponentialIsAccurate) {
  double worst = 0;
  for (std::uint32_t bits = routing::bits_of(-0x1p-30F); bits <= routing::bits_of(-87.0F);
       bits += 101) {
    const float x = routing::float_of(bits);
    const double exact = std::exp(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
    const double error = std::abs(static_cast<double>(routing::exponential(x)) - exact) / unit;
    ASSERT_TRUE(error < 1) << "e^" << x << " is off by " << error << " units";
    worst = std::max(worst, error);
  }
  EXPECT_GT(worst, 0.45) << "nothing was measured";
  RecordProperty("largest_error_in_milliunits", static_cast<int>(worst * 1000));
}

TEST(RouteScore, ExponentialAtItsEnds) {
  EXPECT_EQ(routing::exponential(0.0F), 1);
  EXPECT_EQ(routing::exponential(-0.0F), 1);
  EXPECT_EQ(routing::exponential(-1e-30F), 1);
  EXPECT_GT(routing::exponential(-87.0F), 1.6e-38F);
  EXPECT_EQ(routing::exponential(std::nextafter(-87.0F, -infinity)), 0);
  EXPECT_EQ(routing::exponential(-infinity), 0);
  EXPECT_EQ(routing::exponential(NAN), 0);
}

TEST(RouteScore, SigmoidIsAccurate) {
  for (int i = -87'000; i <= 87'000; ++i) {
    const float x = static_cast<float>(i) / 1000;
    const double exact = 1 / (1 + std::exp(-static_cast<double>(x)));
    const double error = std::abs(static_cast<double>(routing::sigmoid(x)) - exact) / exact;
    ASSERT_TRUE(error < 2 * 0x1p-23) << x;
  }
  EXPECT_EQ(routing::sigmoid(0.0F), 0.5F);
  EXPECT_EQ(routing::sigmoid(routing::largest_finite), 1);
  EXPECT_EQ(routing::sigmoid(-routing::largest_finite), 0);
}

TEST(RouteScore, KeysAreInTheOrderOfScores) {
  std::mt19937 random(20261118);
  std::vector<float> scores = {0.0F, -0.0F, 1e-45F,   -1e-45F,   routing::largest_finite,
                               1,    -1,    infinity, -infinity, -routing::largest_finite};
  while (scores.size() < 400) {
    const float score = routing::float_of(static_cast<std::uint32_t>(random()));
    if (!std::isnan(score)) scores.push_back(score);
  }
  for (const float a : scores) {
    EXPECT_NE(routing::key_of(a), routing::no_key);
    EXPECT_EQ(routing::score_of(routing::key_of(a)), a);
    for (const float b : scores) {
      ASSERT_EQ(routing::key_of(a) < routing::key_of(b), a < b) << a << " and " << b;
    }
  }
  EXPECT_EQ(routing::expert_key(NAN), routing::no_key);
  EXPECT_EQ(routing::expert_key(-infinity), routing::no_key);
}

TEST(RouteScore, GroupsAreComparedByTheirTwoBest) {
  const auto key = [](float score) { return routing::key_of(score); };
  const std::uint32_t none = routing::no_key;
  EXPECT_EQ(routing::group_key(key(0.5F), key(-0.25F)), key(0.25F));
  EXPECT_EQ(routing::group_key(key(-2), none), key(-2));
  EXPECT_EQ(routing::group_key(none, none), none);
  const float lowest = -routing::largest_finite;
  EXPECT_NE(routing::group_key(key(lowest), key(lowest)), none) << "their sum is -infinity";
}

TEST(RouteScore, UsableLogits) {
  EXPECT_EQ(routing::usable(NAN), -infinity);
  EXPECT_EQ(routing::usable(-infinity), -infinity);
  EXPECT_EQ(routing::usable(infinity), routing::largest_finite);
  EXPECT_EQ(routing::usable(-routing::largest_finite), -routing::largest_finite);
  EXPECT_EQ(routing::usable(1.5F), 1.5F);
}

}  // namespace
}  // namespace ps::test
