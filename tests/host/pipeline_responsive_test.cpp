// A run reports its progress and can be cancelled while its items are slow, and ends soon after:
// what is enqueued ahead is little then. Counted in items that ran, not in time, since the machine
// may be busy.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/base/recorder.h"
#include "penstock/host/pipeline.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

using namespace std::chrono_literals;
using Milliseconds = std::chrono::milliseconds;

class IntervalCounter final : public Recorder {
 public:
  void record(const Interval& /*interval*/) noexcept override { ++intervals; }
  std::atomic<std::uint64_t> intervals{0};
};

struct Setup {
  const char* name;
  bool gpu = false;
  Waiting waiting = Waiting::poll;
  bool recorded = false;

  friend std::ostream& operator<<(std::ostream& out, const Setup& setup) {
    return out << setup.name;
  }
};

class Responsive : public testing::TestWithParam<Setup> {
 protected:
  void TearDown() override {
    if (machine) {
      EXPECT_TRUE(is_clean(machine->driver()));
    }
  }

  Device device() const { return GetParam().gpu ? machine->gpu() : Device::cpu(); }
  Pipeline make(std::size_t depth) const {
    return Pipeline({.device = device(), .depth = depth, .waiting = GetParam().waiting});
  }
  RunOptions options(std::uint64_t items) {
    return {.items = items, .recorder = GetParam().recorded ? &recorder : nullptr};
  }
  // Work on the item's stream that takes this long and is then counted.
  StageFunction working(Milliseconds time, std::atomic<std::uint64_t>& count) {
    return [this, time, &count](Item& item) {
      enqueue(item, [this, time, &count] {
        const auto begin = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(time);
        busy_ns += (std::chrono::steady_clock::now() - begin).count();
        ++count;
      });
    };
  }
  void enqueue(Item& item, std::function<void()> function) {
    if (machine) {
      launch(machine->driver(), item.stream(), {}, {}, std::move(function));
    } else {
      item.stream().call(std::move(function));
    }
  }

  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
  std::optional<FakeMachine> machine =
      GetParam().gpu ? std::optional<FakeMachine>(std::in_place, FakeOptions{.max_delay_us = 10})
                     : std::nullopt;
  IntervalCounter recorder;
  std::atomic<std::int64_t> busy_ns{0};
};

INSTANTIATE_TEST_SUITE_P(
    Ways, Responsive,
    testing::Values(Setup{.name = "Cpu"}, Setup{.name = "FakeGpu", .gpu = true},
                    Setup{.name = "FakeGpuSpinning", .gpu = true, .waiting = Waiting::spin},
                    Setup{.name = "FakeGpuBlocking", .gpu = true, .waiting = Waiting::block},
                    Setup{.name = "FakeGpuRecorded", .gpu = true, .recorded = true}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Half a window would be 24 items.
TEST_P(Responsive, ProgressIsReportedWhileItemsAreSlow) {
  Pipeline pipeline = make(4);
  std::atomic<std::uint64_t> ran{0};
  pipeline.stage("compute", {}, working(20ms, ran));
  std::uint64_t last_ran = 0, most_between = 0;
  RunOptions run = options(60);
  run.progress = [&](const Progress& progress) {
    most_between = std::max(most_between, ran - last_ran);
    last_ran = ran;
    EXPECT_GE(progress.done + 12, last_ran) << "the number is out of date";
  };
  pipeline.run(run);
  EXPECT_LE(most_between, 12U);
}

TEST_P(Responsive, ACancelledRunOfDeviceStagesEndsSoon) {
  Pipeline pipeline = make(4);
  std::atomic<std::uint64_t> ran{0};
  pipeline.stage("compute", {}, working(50ms, ran));
  for (const std::uint64_t cancel_at : {0, 3}) {
    ran = 0;
    std::stop_source source;
    std::uint64_t ran_before = 0;
    const std::jthread canceller([&] {
      while (ran < cancel_at) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(10ms);
      ran_before = ran;
      source.request_stop();
    });
    RunOptions run = options(100);
    run.stop = source.get_token();
    EXPECT_TRUE(pipeline.run(run).cancelled);
    EXPECT_LE(ran - ran_before, 4U) << "200 ms of work, cancelled at item " << cancel_at;
  }
}

// Only the slow stage counts: copies beside it let no more items pile up before it.
TEST_P(Responsive, ACancelledRunWithOneSlowStageEndsWithinTwoItems) {
  Pipeline pipeline = make(8);
  std::atomic<std::uint64_t> copied{0}, ran{0};
  const RingId in = pipeline.ring("in", {.memory = Memory::device, .bytes = 64});
  const RingId out = pipeline.ring("out", {.memory = Memory::device, .bytes = 64});
  const StageId upload = pipeline.stage("upload", {.uses = {in}}, working(0ms, copied));
  const StageId compute =
      pipeline.stage("compute", {.after = {upload}, .uses = {in, out}}, working(150ms, ran));
  pipeline.stage("download", {.after = {compute}, .uses = {out}}, working(0ms, copied));
  std::stop_source source;
  std::uint64_t ran_before = 0;
  RunOptions run = options(100);
  run.stop = source.get_token();
  // As Ctrl-C in Python: noticed by the progress function.
  run.progress = [&](const Progress& progress) {
    if (progress.done < 3 || source.stop_requested()) return;
    ran_before = ran;
    source.request_stop();
  };
  EXPECT_TRUE(pipeline.run(run).cancelled);
  EXPECT_LE(ran - ran_before, 2U);
}

TEST_P(Responsive, ACancelledRunWithHostStagesEndsSoon) {
  Pipeline pipeline = make(16);
  std::atomic<std::uint64_t> ran{0};
  const RingId ring = pipeline.ring("ring", {.bytes = 64});
  const StageId read = pipeline.host_stage("read", {.uses = {ring}}, [](Item&) {});
  pipeline.stage("compute", {.after = {read}, .uses = {ring}}, working(50ms, ran));
  std::stop_source source;
  std::uint64_t ran_before = 0;
  const std::jthread canceller([&] {
    while (ran < 3) std::this_thread::sleep_for(1ms);
    ran_before = ran;
    source.request_stop();
  });
  RunOptions run = options(100);
  run.stop = source.get_token();
  EXPECT_TRUE(pipeline.run(run).cancelled);
  EXPECT_LE(ran - ran_before, 4U);
}

// Little is enqueued ahead, and yet every stage works beside the others.
TEST_P(Responsive, SlowStagesStillOverlap) {
  if (GetParam().waiting == Waiting::spin) GTEST_SKIP() << "needs a core that is not spinning";
  Pipeline pipeline = make(4);
  std::atomic<std::uint64_t> ran{0};
  StageId before{};
  for (int stage = 0; stage < 3; ++stage) {
    StageOptions stage_options;
    if (stage > 0) stage_options.after = {before};
    before = pipeline.stage("stage " + std::to_string(stage), stage_options, working(25ms, ran));
  }
  const RunReport report = pipeline.run(options(30));
  EXPECT_EQ(ran, 90U);
  EXPECT_LT(report.seconds, 0.6 * static_cast<double>(busy_ns) * 1e-9)
      << "one after the other they would take all of that time";
}

// While one item holds the stream, the next ones are enqueued far ahead if items were quick so far.
TEST_P(Responsive, QuickItemsAreEnqueuedFarAhead) {
  Pipeline pipeline = make(4);
  std::atomic<std::uint64_t> ran{0};
  std::atomic<bool> hold{true};
  std::uint64_t most_ahead = 0;
  constexpr std::uint64_t held_item = 300, wanted_ahead = 6;
  pipeline.stage("quick", {}, [&](Item& item) {
    most_ahead = std::max(most_ahead, item.index() - ran);
    if (item.index() == held_item + wanted_ahead) hold = false;
    enqueue(item, [&, index = item.index()] {
      const auto deadline = std::chrono::steady_clock::now() + 5s;
      while (index == held_item && hold && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(1ms);
      }
      ++ran;
    });
  });
  pipeline.run(options(600));
  EXPECT_FALSE(hold) << "item " << held_item << " held back what comes after it";
  EXPECT_GE(most_ahead, wanted_ahead);
}

// One item through many stages takes far longer than the time between two items, and it is all that
// the run knows at first: the pause derived from it must not outlast what is enqueued. The best of
// several runs counts, since on a busy machine the enqueuing thread may sleep too long at any time.
TEST_P(Responsive, TheFirstWindowOfQuickItemsDoesNotRunDry) {
  // The fake driver checks every call: under a sanitizer, to enqueue an item takes it longer than
  // the item itself.
  if (GetParam().gpu) GTEST_SKIP() << "needs items that take longer than to enqueue them";
  constexpr std::uint64_t items = 120, known = 16;  // before that, little is enqueued ahead
  std::uint64_t fewest_dry = items;
  for (int attempt = 0; attempt < 20 && fewest_dry > 0; ++attempt) {
    Pipeline pipeline = make(4);
    std::atomic<std::uint64_t> enqueued{0}, dry{0};
    StageId before{};
    for (int stage = 0; stage < 8; ++stage) {
      StageOptions stage_options;
      if (stage > 0) stage_options.after = {before};
      before =
          pipeline.stage("stage " + std::to_string(stage), stage_options, [&, stage](Item& item) {
            if (stage == 7) ++enqueued;
            enqueue(item, [&, stage, index = item.index()] {
              std::this_thread::sleep_for(20us);
              const bool last = enqueued == index + 1;
              if (stage == 7 && last && index >= known && index + 1 < items) ++dry;
            });
          });
    }
    pipeline.run(options(items));
    fewest_dry = std::min<std::uint64_t>(fewest_dry, dry);
  }
  EXPECT_EQ(fewest_dry, 0U) << "everything enqueued was done before more was enqueued";
}

}  // namespace
}  // namespace ps::test
