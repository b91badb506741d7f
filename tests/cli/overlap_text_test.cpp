// An overlap measurement as text: on a quiet machine, on a busy one, and where it says nothing.
#include "overlap_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ps::cli {
namespace {

// Read and compute alone took these times; the pipelined run took `pipelined`.
std::string text_of(const std::vector<double>& alone, double pipelined) {
  FileOverlapResult r;
  for (const double seconds : alone) {
    r.read_alone.add(seconds);
    r.compute_alone.add(seconds);
  }
  r.sequential.seconds = 2;
  r.pipelined.seconds = pipelined;
  r.times = {.sequential = 2, .pipelined = pipelined, .floor = r.read_alone.seconds(), .ideal = 1};
  r.figures = overlap_figures(r.times);
  r.verdict = judge_by_floor(pipelined, r.times.floor);
  r.tries = 3;
  return overlap_text(r);
}

bool says(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

TEST(OverlapText, AQuietMachineHasItsFiguresAndNoNote) {
  const std::string quiet = text_of({1, 1.01, 1.02}, 1.1);
  EXPECT_TRUE(says(quiet, "x floor"));
  EXPECT_TRUE(says(quiet, "1.100"));
  EXPECT_TRUE(says(quiet, "hidden"));
  EXPECT_TRUE(says(quiet, "90.0%"));
  EXPECT_FALSE(says(quiet, "busy"));
}

TEST(OverlapText, PassesThatScatterMakeANote) {
  const std::string scattered = text_of({1, 1.6, 3}, 1.7);
  EXPECT_TRUE(says(scattered, "the machine was busy: an engine alone usually took 1.6 x its best"));
  EXPECT_TRUE(says(scattered, "x floor"));
}

TEST(OverlapText, WhatBeatsItsFloorHasTimesAloneAndASentence) {
  const std::string busy = text_of({1, 1, 1}, 0.5);
  EXPECT_TRUE(says(
      busy,
      "The machine is too busy to measure: in 3 tries, the pipelined run was faster (500 ms)"));
  EXPECT_TRUE(says(busy, "500 ms"));
  EXPECT_FALSE(says(busy, "hidden"));
}

TEST(OverlapText, WarnsOfRecordsThatTheTimelinesLack) {
  OverlapResult result;
  EXPECT_EQ(overlap_text(result, Device::cpu()).find("lost"), std::string::npos);
  result.sequential_timeline.add_lost(1);
  EXPECT_NE(overlap_text(result, Device::cpu()).find("incomplete, 1 record was lost"),
            std::string::npos);
  result.pipelined_timeline.add_lost(2);
  EXPECT_NE(overlap_text(result, Device::cpu()).find("incomplete, 3 records were lost"),
            std::string::npos);
}

}  // namespace
}  // namespace ps::cli
