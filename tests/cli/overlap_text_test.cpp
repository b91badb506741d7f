#include "overlap_text.h"

#include <gtest/gtest.h>

namespace ps::cli {
namespace {

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
