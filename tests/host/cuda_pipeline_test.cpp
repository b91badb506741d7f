// The pipeline on the fake driver: nothing is touched too early, nothing is left behind.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "penstock/base/error.h"
#include "penstock/base/recorder.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/pipeline.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/tiny_pipeline.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

TEST(CudaPipeline, RunsCleanlyAtEveryDepthAndWithEveryDelay) {
  Watchdog watchdog("CudaPipeline.RunsCleanlyAtEveryDepthAndWithEveryDelay");
  const Waiting waits[] = {Waiting::poll, Waiting::spin, Waiting::block};
  for (const std::size_t depth : {1, 2, 3, 5}) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const std::string here = "depth " + std::to_string(depth) + ", seed " + std::to_string(seed);
      watchdog.step(here);
      FakeMachine machine({.stream_wait_value = seed % 2 == 0, .seed = seed});
      {
        TinyPipeline tiny(machine.gpu(), {.depth = depth,
                                          .driver = &machine.driver(),
                                          .host_stages = seed % 4 != 0,
                                          .host_calls = seed % 3 == 0,
                                          .waiting = waits[seed % 3]});
        tiny.run_well(30);
        tiny.run_well(0);
        tiny.run_well(7);
      }
      EXPECT_TRUE(is_clean(machine.driver())) << here;
    }
  }
}

TEST(CudaPipeline, TheSecondRunAllocatesNothing) {
  FakeMachine machine;
  FakeDriver& driver = machine.driver();
  TinyPipeline tiny(machine.gpu(), {.depth = 3, .driver = &driver});
  tiny.run_well(20);
  const Outstanding before = driver.outstanding();
  const RunReport report = tiny.run({.items = 20});
  EXPECT_EQ(report.allocations, 0U);
  EXPECT_EQ(driver.outstanding(), before);
}

// The ring lets four items be in flight, so eight times the scratch of one is more than enough.
TEST(CudaPipeline, ScratchIsBoundedByWhatIsInFlight) {
  const Watchdog watchdog("CudaPipeline.ScratchIsBoundedByWhatIsInFlight");
  FakeMachine machine({.pool_step = MiB});
  FakeDriver& driver = machine.driver();
  {
    const Pool pool(machine.gpu(), {.limit = 8 * MiB});
    Pipeline pipeline({.device = machine.gpu(), .depth = 4, .pool = pool});
    const RingId ring = pipeline.ring("ring", {.memory = Memory::device, .bytes = 16});
    std::map<std::uint64_t, MemoryView> scratch;
    StageId second;
    const StageId first = pipeline.stage("first", {.uses = {ring}}, [&](Item& item) {
      scratch[item.index()] = item.scratch(MiB, second);
      fill(scratch[item.index()], 1, item.stream());
    });
    second = pipeline.stage("second", {.after = {first}, .uses = {ring}},
                            [&](Item& item) { fill(scratch[item.index()], 2, item.stream()); });
    EXPECT_EQ(pipeline.run({.items = 60}).items, 60U);
    EXPECT_EQ(pool.statistics().in_use, 0U);
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST(CudaPipeline, UsesTheCallersStreamsAndDoesNotSynchroniseTheDevice) {
  const Watchdog watchdog("CudaPipeline.UsesTheCallersStreamsAndDoesNotSynchroniseTheDevice");
  FakeMachine machine;
  FakeDriver& driver = machine.driver();
  driver.allow_stream(cuda::legacy_stream);
  driver.allow_stream(cuda::per_thread_stream);
  {
    const Device gpu = machine.gpu();
    const Stream legacy = borrow_native(gpu, cuda::legacy_stream);
    const Stream per_thread = borrow_native(gpu, cuda::per_thread_stream);
    const Stream foreign = borrow_native(gpu, driver.foreign_stream());
    TinyPipeline separate(gpu, {.driver = &driver, .streams = {legacy, per_thread, foreign}});
    separate.run_well(20);
    TinyPipeline same(gpu, {.driver = &driver, .streams = {foreign, foreign, foreign}});
    same.run_well(20);
    EXPECT_EQ(driver.calls("stream_create"), 0U);
    EXPECT_EQ(driver.calls("device_synchronize"), 0U);
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST(CudaPipeline, StartsBehindTheCallersStream) {
  FakeMachine machine;
  FakeDriver& driver = machine.driver();
  driver.allow_stream(cuda::legacy_stream);
  {
    const Device gpu = machine.gpu();
    const Stream caller = borrow_native(gpu, cuda::legacy_stream);
    const PinnedBuffer input(gpu, 64);
    std::atomic<int> early{0};
    std::atomic<bool> written{false};
    launch(driver, caller, {}, {{input.view().data, 64}}, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      written = true;
    });
    Pipeline pipeline({.device = gpu});
    const auto work = pipeline.ring("work", {.memory = Memory::device, .bytes = 64});
    pipeline.host_stage("host", {}, [&](Item&) { early += written ? 0 : 1; });
    pipeline.stage("device", {.uses = {work}},
                   [&](Item& item) { copy(item.slot(work), input.view(), item.stream()); });
    pipeline.run({.items = 3, .after = caller});
    EXPECT_EQ(early, 0);
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST(CudaPipeline, RunsOnTheSecondDevice) {
  FakeMachine machine({.devices = 2});
  FakeDriver& driver = machine.driver();
  {
    TinyPipeline tiny(machine.gpu(1), {.driver = &driver, .host_calls = true});
    tiny.run_well(20);
    int current = -1;
    driver.get_device(&current);
    EXPECT_EQ(current, 0);
  }
  EXPECT_TRUE(is_clean(driver));
}

class Intervals final : public Recorder {
 public:
  void record(const Interval& interval) noexcept override {
    const std::lock_guard lock(mutex_);
    seen.emplace(std::string(interval.stage), interval.item);
    ordered = ordered && interval.begin_ns <= interval.end_ns;
  }
  std::multiset<std::pair<std::string, std::uint64_t>> seen;
  bool ordered = true;

 private:
  std::mutex mutex_;
};

TEST(CudaPipeline, RecordsEveryStageOfEveryItem) {
  FakeMachine machine;
  for (const bool host_stages : {true, false}) {
    TinyPipeline tiny(machine.gpu(), {.driver = &machine.driver(), .host_stages = host_stages});
    Intervals intervals;
    tiny.run({.items = 15, .recorder = &intervals});
    EXPECT_TRUE(intervals.ordered);
    for (const std::string& stage : TinyPipeline::stages) {
      for (std::uint64_t item = 0; item < 15; ++item) {
        EXPECT_EQ(intervals.seen.count({stage, item}), 1U) << stage << " " << item;
      }
    }
  }
  EXPECT_TRUE(is_clean(machine.driver()));
}

TEST(CudaPipeline, WithoutARecorderNoDeviceWorkIsTimed) {
  FakeMachine machine;
  FakeDriver& driver = machine.driver();
  TinyPipeline tiny(machine.gpu(), {.driver = &driver});
  tiny.run({.items = 15});
  EXPECT_EQ(driver.calls("event_elapsed_ms"), 0U);
  const std::uint64_t untimed = driver.calls("event_record");
  Intervals intervals;
  tiny.run({.items = 15, .recorder = &intervals});
  EXPECT_GT(driver.calls("event_elapsed_ms"), 0U);
  EXPECT_GT(driver.calls("event_record") - untimed, untimed);
}

TEST(CudaPipeline, FanOutAndFanInAreOrderedOnTheDevice) {
  FakeMachine machine;
  FakeDriver& driver = machine.driver();
  {
    Pipeline pipeline({.device = machine.gpu(), .depth = 2});
    const auto a = pipeline.ring("a", {.memory = Memory::device, .bytes = 64, .depth = 3});
    const auto b = pipeline.ring("b", {.memory = Memory::device, .bytes = 64});
    const auto c = pipeline.ring("c", {.memory = Memory::device, .bytes = 64, .depth = 1});
    const auto source = pipeline.stage("source", {.uses = {a}}, [&](Item& item) {
      fill(item.slot(a), static_cast<std::uint8_t>(item.index()), item.stream());
    });
    const auto left = pipeline.stage("left", {.after = {source}, .uses = {a, b}}, [&](Item& item) {
      copy(item.slot(b), item.slot(a), item.stream());
    });
    const auto right =
        pipeline.stage("right", {.after = {source}, .uses = {a, c}},
                       [&](Item& item) { copy(item.slot(c), item.slot(a), item.stream()); });
    std::atomic<int> equal{0};
    pipeline.stage("join", {.after = {left, right}, .uses = {b, c}}, [&](Item& item) {
      const auto* x = item.slot(b).as<std::uint8_t>();
      const auto* y = item.slot(c).as<std::uint8_t>();
      launch(driver, item.stream(), {{x, 64}, {y, 64}}, {},
             [&equal, x, y, value = static_cast<std::uint8_t>(item.index())] {
               equal += x[63] == value && y[63] == value;
             });
    });
    pipeline.run({.items = 40});
    EXPECT_EQ(equal, 40);
  }
  EXPECT_TRUE(is_clean(driver));
}

// The watcher must be able to see: the same graph with an access that no ring announces.
TEST(CudaPipeline, AnAccessOutsideTheRingsIsSeen) {
  FakeMachine machine;
  FakeDriver& driver = machine.driver();
  {
    const DeviceBuffer shared(machine.gpu(), 64);
    Pipeline pipeline({.device = machine.gpu()});
    const auto touch = [&](Item& item) { fill(shared.view(), 1, item.stream()); };
    pipeline.stage("one", {}, touch);
    pipeline.stage("two", {}, touch);
    pipeline.run({.items = 3});
  }
  ASSERT_FALSE(driver.violations().empty());
  EXPECT_NE(driver.violations().front().find("does not wait for fill"), std::string::npos);
}

}  // namespace
}  // namespace ps::test
