#include "trace/device_records.h"

#include <gtest/gtest.h>

namespace ps::detail {
namespace {

TEST(DeviceRecords, WorkIsWrittenUnderItsOwnerOrItsOwnName) {
  DeviceRecords records;
  const std::uint64_t owner = records.add_owner("upload", 4);
  records.link(11, owner);
  records.link(12, 99);  // an owner that is not known
  records.add_work({Engine::upload, "copy", 11, 150, 160});
  records.add_work({Engine::compute, "kernel", 12, 170, 180});
  records.add_work({Engine::compute, "kernel", 13, 190, 200});
  Timeline timeline;
  records.write_to(timeline, 100);
  const auto entries = timeline.entries();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].stage, "upload");
  EXPECT_EQ(entries[0].item, 4U);
  EXPECT_EQ(entries[0].begin_ns, 50);
  EXPECT_EQ(entries[0].end_ns, 60);
  EXPECT_EQ(entries[1].stage, "kernel");
  EXPECT_EQ(entries[1].item, 0U);
  EXPECT_EQ(entries[2].item, 1U) << "work without an owner is numbered";
  EXPECT_TRUE(timeline.complete());
}

TEST(DeviceRecords, LostRecordsReachTheTimeline) {
  DeviceRecords records;
  records.add_lost(2);
  records.add_lost(3);
  Timeline timeline;
  records.write_to(timeline, 0);
  EXPECT_EQ(timeline.lost_records(), 5U);
  EXPECT_FALSE(timeline.complete());

  records.clear();
  timeline.clear();
  records.write_to(timeline, 0);
  EXPECT_TRUE(timeline.complete());
}

}  // namespace
}  // namespace ps::detail
