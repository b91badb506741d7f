// DeviceTrace over a fake CUPTI: whose work it was, and which records are missing.
#include "penstock/trace/device_trace.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "fake_cupti.h"
#include "penstock/base/error.h"
#include "support/child.h"

namespace ps::test {
namespace {

class FakeCupti : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string path = beside_this_program("libpenstock_fake_cupti.so").string();
    setenv("PENSTOCK_CUPTI", path.c_str(), 1);
    library = dlopen(path.c_str(), RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
  }
  void SetUp() override {
    const std::string why = DeviceTrace::why_not();
    if (why == "this build is without CUDA") GTEST_SKIP() << "built without CUPTI's header";
    ASSERT_EQ(why, "");
  }

  template <class... Arguments>
  static void call(const char* name, Arguments... arguments) {
    reinterpret_cast<void (*)(Arguments...)>(dlsym(library, name))(arguments...);
  }
  static void kernel(std::uint64_t begin_ns, std::uint64_t end_ns) {
    call("fake_cupti_kernel", begin_ns, end_ns);
  }
  static void drop(std::size_t records) { call("fake_cupti_drop", records); }

  inline static void* library = nullptr;
};

TEST_F(FakeCupti, WorkIsRecordedUnderItsStageAndItem) {
  Timeline timeline;
  {
    DeviceTrace trace(timeline);
    trace.begin_run(1'000);
    trace.begin_enqueue("compute", 7);
    kernel(1'100, 1'200);
    trace.end_enqueue();
    kernel(1'300, 1'400);
  }
  const auto entries = timeline.entries();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].stage, "compute");
  EXPECT_EQ(entries[0].item, 7U);
  EXPECT_EQ(entries[0].begin_ns, 100);
  EXPECT_EQ(entries[0].end_ns, 200);
  EXPECT_EQ(entries[1].stage, "fake_kernel");
  EXPECT_EQ(timeline.lost_records(), 0U);
  EXPECT_TRUE(timeline.complete());
}

TEST_F(FakeCupti, RecordsThatCuptiDropsAreCounted) {
  Timeline timeline;
  {
    const DeviceTrace trace(timeline);
    kernel(1, 2);
    drop(3);
  }
  EXPECT_EQ(timeline.entries().size(), 1U);
  EXPECT_EQ(timeline.lost_records(), 3U);
  EXPECT_FALSE(timeline.complete());
}

TEST_F(FakeCupti, TheyAreCountedEvenIfNoRecordArrives) {
  Timeline timeline;
  {
    const DeviceTrace trace(timeline);
    drop(5);
  }
  EXPECT_TRUE(timeline.entries().empty());
  EXPECT_EQ(timeline.lost_records(), 5U);
}

TEST_F(FakeCupti, AnUnreadableRecordIsCountedAndThoseBeforeItKept) {
  Timeline timeline;
  {
    const DeviceTrace trace(timeline);
    kernel(1, 2);
    call("fake_cupti_break");
  }
  EXPECT_EQ(timeline.entries().size(), 1U);
  EXPECT_EQ(timeline.lost_records(), 1U);
}

TEST_F(FakeCupti, ATraceDoesNotCountWhatAnEarlierOneLost) {
  Timeline first, second;
  {
    const DeviceTrace trace(first);
    drop(2);
  }
  {
    const DeviceTrace trace(second);
    kernel(1, 2);
  }
  EXPECT_EQ(first.lost_records(), 2U);
  EXPECT_TRUE(second.complete());
  first.clear();
  EXPECT_TRUE(first.complete());
}

}  // namespace
}  // namespace ps::test
