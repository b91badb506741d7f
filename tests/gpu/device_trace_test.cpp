// What CUPTI tells: every piece of work, by stage and item, at the times that events tell as well.
#include "penstock/trace/device_trace.h"

#include <map>
#include <set>
#include <string>

#include "gpu/gpu_pipeline.h"
#include "gpu/gpu_test.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/measure/yardstick.h"
#include "penstock/ops/iterate.h"

namespace ps::test {
namespace {

class DeviceTraceGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (const std::string why = DeviceTrace::why_not(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(DeviceTraceGpu, TellsTheWorkOfEveryItemByItsStage) {
  GpuPipeline pipeline(gpu);
  constexpr std::uint64_t items = 20;
  for (int round = 0; round < 2; ++round) {  // it can be begun again
    Timeline timeline;
    {
      DeviceTrace trace(timeline);
      pipeline.run({.items = items, .recorder = &trace});
    }
    // What each stage had each engine do; compute fills its scratch as well.
    std::map<std::pair<std::string, Engine>, std::set<std::uint64_t>> seen;
    for (const TimelineEntry& entry : timeline.entries()) {
      seen[{entry.stage, entry.engine}].insert(entry.item);
      EXPECT_GE(entry.begin_ns, 0);
      EXPECT_GE(entry.end_ns, entry.begin_ns);
    }
    const std::pair<std::string, Engine> expected[] = {{"upload", Engine::upload},
                                                       {"compute", Engine::compute},
                                                       {"compute", Engine::device_copy},
                                                       {"download", Engine::download}};
    for (const auto& work : expected) EXPECT_EQ(seen[work].size(), items) << work.first;
    EXPECT_EQ(timeline.lost_records(), 0U);
    // And nothing else: the host's stages are the other ones.
    std::erase_if(seen, [](const auto& work) { return work.first.second == Engine::host; });
    EXPECT_EQ(seen.size(), std::size(expected));
  }
}

TEST_F(DeviceTraceGpu, AgreesWithEvents) {
  const DeviceBuffer buffer(gpu, 64 * MiB);
  Pipeline pipeline({.device = gpu});
  pipeline.stage("compute", {}, [&](Item& item) {
    const TensorView x = ps::floats(buffer.view());
    iterate({.in = x, .out = x, .rounds = 2000}, item.stream());
  });
  pipeline.run({.items = 2});
  Timeline by_events, by_cupti;
  pipeline.run({.items = 8, .recorder = &by_events});
  {
    DeviceTrace trace(by_cupti);
    pipeline.run({.items = 8, .recorder = &trace});
  }
  const double events = by_events.busy_seconds(Engine::compute);
  const double cupti = by_cupti.busy_seconds(Engine::compute);
  ASSERT_GT(events, 1e-3);
  EXPECT_NEAR(cupti / events, 1, 0.1);
}

TEST_F(DeviceTraceGpu, TellsOtherWorkByItsKernel) {
  const DeviceBuffer buffer(gpu, MiB);
  const Stream stream(gpu);
  Timeline timeline;
  {
    const DeviceTrace trace(timeline);
    const TensorView x = ps::floats(buffer.view());
    iterate({.in = x, .out = x, .rounds = 2}, stream);
    stream.synchronize();
  }
  ASSERT_EQ(timeline.entries().size(), 1U);
  EXPECT_NE(timeline.entries()[0].stage.find("iterate"), std::string::npos)
      << timeline.entries()[0].stage;
}

TEST_F(DeviceTraceGpu, ThereIsOneAtATime) {
  Timeline timeline;
  {
    const DeviceTrace trace(timeline);
    EXPECT_THROW(DeviceTrace{timeline}, Unsupported);
  }
  EXPECT_NO_THROW(DeviceTrace{timeline});
}

TEST_F(DeviceTraceGpu, ThePipelinesOfTheCpuAreTimedAsEver) {
  Pipeline pipeline({.device = Device::cpu()});
  pipeline.stage("compute", {}, [](Item&) {});
  Timeline timeline;
  {
    DeviceTrace trace(timeline);
    pipeline.run({.items = 3, .recorder = &trace});
  }
  EXPECT_EQ(timeline.entries().size(), 3U);
}

}  // namespace
}  // namespace ps::test
