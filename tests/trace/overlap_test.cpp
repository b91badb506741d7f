#include "penstock/trace/overlap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "penstock/base/error.h"

namespace ps {
namespace {

// Ten seconds one after the other, of which four can never be hidden.
OverlapTimes times(double pipelined) {
  return {.sequential = 10, .pipelined = pipelined, .floor = 4, .ideal = 4.5};
}

TEST(OverlapFigures, ReachingTheFloorHidesAll) {
  const OverlapFigures figures = overlap_figures(times(4));
  ASSERT_TRUE(figures.hidden.has_value());
  EXPECT_DOUBLE_EQ(*figures.hidden, 1);
  EXPECT_DOUBLE_EQ(figures.efficiency, 1);
  EXPECT_DOUBLE_EQ(figures.speedup, 2.5);
  EXPECT_EQ(figures.note, "");
}

TEST(OverlapFigures, NoFasterThanSequentialHidesNothing) {
  const OverlapFigures figures = overlap_figures(times(10));
  ASSERT_TRUE(figures.hidden.has_value());
  EXPECT_DOUBLE_EQ(*figures.hidden, 0);
  EXPECT_DOUBLE_EQ(figures.efficiency, 0.4);
  EXPECT_DOUBLE_EQ(figures.speedup, 1);
}

TEST(OverlapFigures, HalfWayHidesHalf) {
  const OverlapFigures figures = overlap_figures(times(7));
  ASSERT_TRUE(figures.hidden.has_value());
  EXPECT_DOUBLE_EQ(*figures.hidden, 0.5);
}

TEST(OverlapFigures, SlowerThanSequentialIsNegativeAndNotClipped) {
  const OverlapFigures figures = overlap_figures(times(13));
  ASSERT_TRUE(figures.hidden.has_value());
  EXPECT_DOUBLE_EQ(*figures.hidden, -0.5);
}

TEST(OverlapFigures, FasterThanTheFloorIsNotClipped) {
  const OverlapFigures figures = overlap_figures(times(1));
  ASSERT_TRUE(figures.hidden.has_value());
  EXPECT_DOUBLE_EQ(*figures.hidden, 1.5);
  EXPECT_DOUBLE_EQ(figures.efficiency, 4);
}

TEST(OverlapFigures, OneEngineAloneLeavesNothingToHide) {
  for (const double sequential : {4.0, 4.0 * 1.019, 4.0 / 1.019}) {
    const OverlapFigures figures =
        overlap_figures({.sequential = sequential, .pipelined = 4.1, .floor = 4, .ideal = 4});
    EXPECT_FALSE(figures.hidden.has_value()) << sequential;
    EXPECT_NE(figures.note.find("nothing to hide"), std::string::npos) << figures.note;
    EXPECT_DOUBLE_EQ(figures.efficiency, 4 / 4.1);
  }
}

TEST(OverlapFigures, RefusesTimesThatAreNotTimes) {
  const double inf = std::numeric_limits<double>::infinity();
  struct Field {
    const char* name;
    double OverlapTimes::* member;
  };
  for (const Field& field :
       {Field{"times.sequential", &OverlapTimes::sequential},
        Field{"times.pipelined", &OverlapTimes::pipelined},
        Field{"times.floor", &OverlapTimes::floor}, Field{"times.ideal", &OverlapTimes::ideal}}) {
    for (const double bad : {0.0, -0.0, -1.0, inf, -inf, std::nan("")}) {
      OverlapTimes given = times(5);
      given.*field.member = bad;
      try {
        overlap_figures(given);
        ADD_FAILURE() << field.name << " = " << bad << " was accepted";
      } catch (const InvalidArgument& error) {
        EXPECT_EQ(error.argument(), field.name) << bad;
      }
    }
  }
}

TEST(OverlapFigures, HoldForRandomTimes) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> time(1e-6, 10);
  for (int i = 0; i < 2000; ++i) {
    OverlapTimes given{.pipelined = time(random), .floor = time(random)};
    given.sequential = given.floor * (1.03 + time(random));
    given.ideal = given.floor;
    const OverlapFigures figures = overlap_figures(given);
    ASSERT_TRUE(figures.hidden.has_value());
    // Between the floor and the sequential time, and only there, hidden is between 0 and 1.
    EXPECT_EQ(*figures.hidden >= 0, given.pipelined <= given.sequential);
    EXPECT_EQ(*figures.hidden <= 1, given.pipelined >= given.floor);
    EXPECT_EQ(figures.efficiency <= 1, given.pipelined >= given.floor);
    EXPECT_EQ(figures.note, "");

    // Only ratios matter: other units give the same figures.
    const OverlapFigures scaled = overlap_figures(
        {given.sequential * 8, given.pipelined * 8, given.floor * 8, given.ideal * 8});
    EXPECT_EQ(scaled.hidden, figures.hidden);
    EXPECT_EQ(scaled.efficiency, figures.efficiency);
  }
}

}  // namespace
}  // namespace ps
