// The rule of floors: the best pass counts, and what is faster than 0.98 of it is dropped.
#include "penstock/measure/floor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "penstock/base/error.h"

namespace ps {
namespace {

TEST(Floor, IsTheBestOfAllPasses) {
  Floor floor;
  EXPECT_THROW(floor.seconds(), std::logic_error);
  for (const double seconds : {3.0, 2.0, 5.0}) floor.add(seconds);
  EXPECT_EQ(floor.seconds(), 2);
  EXPECT_EQ(floor.passes(), 3u);
  floor.add(1.5);  // later passes count as well
  EXPECT_EQ(floor.seconds(), 1.5);
}

TEST(Floor, SaysHowFarTheUsualPassIsFromTheBest) {
  Floor floor;
  EXPECT_THROW(floor.spread(), std::logic_error);
  for (const double seconds : {2.0, 3.0, 9.0}) floor.add(seconds);
  EXPECT_EQ(floor.spread(), 1.5);
}

TEST(Floor, AddsThePassThatItTimes) {
  Floor floor;
  int runs = 0;
  const double seconds = floor.time([&] { ++runs; });
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(floor.passes(), 1u);
  EXPECT_EQ(floor.seconds(), seconds);
}

TEST(Floor, TakesOverThePassesOfAnother) {
  Floor floor, other, none;
  floor.add(2);
  other.add(1);
  other.add(4);
  floor.merge(other);
  floor.merge(none);
  EXPECT_EQ(floor.seconds(), 1);
  EXPECT_EQ(floor.passes(), 3u);
  none.merge(floor);
  EXPECT_EQ(none.seconds(), 1);
}

TEST(Floor, ARowBelow98PercentIsDroppedWithItsReason) {
  const FloorVerdict kept = judge_by_floor(0.981e-3, 1e-3);
  EXPECT_TRUE(kept.kept());
  EXPECT_NEAR(kept.over_floor, 0.981, 1e-12);
  const FloorVerdict dropped = judge_by_floor(0.979e-3, 1e-3);
  EXPECT_FALSE(dropped.kept());
  EXPECT_EQ(dropped.reason,
            "took 979 us, 0.979 x its floor of 1 ms; a row below 0.98 x its floor is a "
            "measuring error");
}

TEST(Floor, RefusesTimesThatAreNotTimes) {
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_THROW(Floor().add(bad), InvalidArgument) << bad;
    EXPECT_THROW(judge_by_floor(bad, 1), InvalidArgument) << bad;
    EXPECT_THROW(judge_by_floor(1, bad), InvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace ps
