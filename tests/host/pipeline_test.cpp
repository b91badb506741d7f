#include "penstock/host/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/units.h"

namespace {

const ps::Device cpu = ps::Device::cpu();

// read -> upload -> compute -> download -> write over 64-byte slots; the sum of what was written
// tells whether every item went through every stage once and in order.
struct FiveStages {
  explicit FiveStages(std::size_t depth) : pipeline({.device = cpu, .depth = depth}) {
    in = pipeline.ring("in", {.memory = ps::Memory::pinned, .bytes = 64});
    work = pipeline.ring("work", {.memory = ps::Memory::device, .bytes = 64});
    out = pipeline.ring("out", {.memory = ps::Memory::pinned, .bytes = 64});
    read = pipeline.host_stage("read", {.uses = {in}, .engine = ps::Engine::disk},
                               [this](ps::Item& item) {
                                 hook("read", item);
                                 *item.slot(in).as<std::uint64_t>() = item.index();
                               });
    upload = pipeline.stage("upload",
                            {.after = {read}, .uses = {in, work}, .engine = ps::Engine::upload},
                            [this](ps::Item& item) {
                              hook("upload", item);
                              ps::copy(item.slot(work), item.slot(in), item.stream());
                            });
    compute =
        pipeline.stage("compute", {.after = {upload}, .uses = {work}}, [this](ps::Item& item) {
          hook("compute", item);
          const auto scratch = item.scratch(64 + 32 * (item.index() % 7));
          item.stream().call(
              [data = item.slot(work).as<std::uint64_t>(), copy = scratch.as<std::uint64_t>()] {
                *copy = *data * 3;
                *data = *copy + 1;
              });
        });
    download = pipeline.stage(
        "download", {.after = {compute}, .uses = {work, out}, .engine = ps::Engine::download},
        [this](ps::Item& item) {
          hook("download", item);
          ps::copy(item.slot(out), item.slot(work), item.stream());
        });
    write =
        pipeline.host_stage("write", {.after = {download}, .uses = {out}}, [this](ps::Item& item) {
          hook("write", item);
          written.push_back(*item.slot(out).as<std::uint64_t>());
        });
  }

  void hook(const std::string& stage, ps::Item& item) const {
    if (on_stage) on_stage(stage, item);
  }
  void check(std::uint64_t items) const {
    ASSERT_EQ(written.size(), items);
    for (std::uint64_t i = 0; i < items; ++i) ASSERT_EQ(written[i], 3 * i + 1);
  }

  std::function<void(const std::string&, ps::Item&)> on_stage;
  std::vector<std::uint64_t> written;
  ps::Pipeline pipeline;
  ps::RingId in, work, out;
  ps::StageId read, upload, compute, download, write;
};

TEST(Pipeline, EveryItemGoesThroughEveryStageInOrder) {
  for (const std::size_t depth : {1, 2, 3, 4, 8}) {
    for (const std::uint64_t items : {0, 1, 2, 5, 200}) {
      FiveStages five(depth);
      const auto report = five.pipeline.run({.items = items});
      EXPECT_EQ(report.items, items);
      EXPECT_FALSE(report.cancelled);
      five.check(items);
    }
  }
}

TEST(Pipeline, RunsAgainWithoutAllocating) {
  FiveStages five(4);
  EXPECT_GT(five.pipeline.run({.items = 10}).allocations, 0U);
  five.written.clear();
  EXPECT_EQ(five.pipeline.run({.items = 2000}).allocations, 0U);
  five.check(2000);
}

TEST(Pipeline, AMillionItems) {
  ps::Pipeline pipeline({.device = cpu});
  std::uint64_t sum = 0;
  const auto a = pipeline.host_stage("a", {}, [&](ps::Item& item) { sum += item.index(); });
  std::uint64_t last = 0;
  pipeline.host_stage("b", {.after = {a}}, [&](ps::Item& item) { last = item.index(); });
  constexpr std::uint64_t items = 1'000'000;
  EXPECT_EQ(pipeline.run({.items = items}).items, items);
  EXPECT_EQ(sum, items * (items - 1) / 2);
  EXPECT_EQ(last, items - 1);
}

// A -> B -> D and A -> D, while C runs free: D sees both, C is bound to nobody.
TEST(Pipeline, FanOutAndFanIn) {
  ps::Pipeline pipeline({.device = cpu});
  const auto ring = pipeline.ring("ring", {.memory = ps::Memory::device, .bytes = 16});
  const auto a = pipeline.stage("a", {.uses = {ring}}, [&](ps::Item& item) {
    item.stream().call([p = item.slot(ring).as<std::uint64_t>(), i = item.index()] { p[0] = i; });
  });
  const auto b = pipeline.stage("b", {.after = {a}, .uses = {ring}}, [&](ps::Item& item) {
    item.stream().call([p = item.slot(ring).as<std::uint64_t>()] { p[1] = p[0] + 1; });
  });
  std::atomic<std::uint64_t> free_items{0};
  pipeline.stage("c", {}, [&](ps::Item& item) { item.stream().call([&] { ++free_items; }); });
  std::vector<std::uint64_t> seen;
  pipeline.stage("d", {.after = {a, b}, .uses = {ring}}, [&](ps::Item& item) {
    item.stream().call(
        [&seen, p = item.slot(ring).as<std::uint64_t>()] { seen.push_back(p[0] + p[1]); });
  });
  pipeline.run({.items = 500});
  ASSERT_EQ(seen.size(), 500U);
  for (std::uint64_t i = 0; i < 500; ++i) ASSERT_EQ(seen[i], 2 * i + 1);
  EXPECT_EQ(free_items, 500U);
}

TEST(Pipeline, BackPressureBoundsWhatIsInFlight) {
  ps::Pipeline pipeline({.device = cpu, .depth = 3});
  const auto ring = pipeline.ring("ring", {.bytes = 8});
  std::atomic<int> in_flight{0}, most{0};
  const auto fast = pipeline.host_stage("fast", {.uses = {ring}}, [&](ps::Item&) {
    const int now = ++in_flight;
    int seen = most;
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
  });
  pipeline.host_stage("slow", {.after = {fast}, .uses = {ring}}, [&](ps::Item&) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    --in_flight;
  });
  const auto report = pipeline.run({.items = 100});
  EXPECT_LE(most, 3);
  EXPECT_GT(report.rings.front().exhausted, 0U);
}

TEST(Pipeline, ScratchLivesUntilTheStageItWasAskedFor) {
  ps::Pool pool(cpu);
  ps::Pipeline pipeline({.device = cpu, .pool = pool});
  std::map<std::uint64_t, ps::MemoryView> scratch;
  ps::StageId second;
  const auto first = pipeline.stage("first", {}, [&](ps::Item& item) {
    const auto memory = item.scratch(8 + 8 * (item.index() % 5), second);
    scratch[item.index()] = memory;
    item.stream().call([memory, i = item.index()] { *memory.as<std::uint64_t>() = i; });
  });
  std::vector<std::uint64_t> seen;
  second = pipeline.stage("second", {.after = {first}}, [&](ps::Item& item) {
    item.stream().call(
        [&seen, memory = scratch[item.index()]] { seen.push_back(*memory.as<std::uint64_t>()); });
  });
  pipeline.run({.items = 300});
  for (std::uint64_t i = 0; i < 300; ++i) ASSERT_EQ(seen[i], i);
  EXPECT_EQ(pool.statistics().in_use, 0U);
  EXPECT_EQ(pool.statistics().allocations, 300U);
}

// The ring lets four items be in flight, so eight times the scratch of one is more than enough.
TEST(Pipeline, ScratchIsBoundedByWhatIsInFlight) {
  for (const bool sizes_differ : {false, true}) {
    const ps::Pool pool(cpu, {.limit = 8 * ps::MiB});
    ps::Pipeline pipeline({.device = cpu, .depth = 4, .pool = pool});
    const auto ring = pipeline.ring("ring", {.memory = ps::Memory::device, .bytes = 16});
    std::map<std::uint64_t, ps::MemoryView> scratch;
    ps::StageId second;
    const auto first = pipeline.stage("first", {.uses = {ring}}, [&](ps::Item& item) {
      const std::size_t bytes = sizes_differ ? ps::MiB - item.index() % 5 * 150'000 : ps::MiB;
      const auto memory = item.scratch(bytes, second);
      scratch[item.index()] = memory;
      item.stream().call([memory, i = item.index()] {
        std::fill_n(memory.as<std::uint64_t>(), memory.bytes / 8, i);
      });
    });
    std::vector<bool> intact;
    second = pipeline.stage("second", {.after = {first}, .uses = {ring}}, [&](ps::Item& item) {
      item.stream().call([&intact, memory = scratch[item.index()], i = item.index()] {
        const auto* const words = memory.as<std::uint64_t>();
        intact.push_back(std::count(words, words + memory.bytes / 8, i) ==
                         static_cast<std::ptrdiff_t>(memory.bytes / 8));
      });
    });
    EXPECT_EQ(pipeline.run({.items = 60}).items, 60U);
    EXPECT_EQ(intact, std::vector<bool>(60, true));
    EXPECT_LE(pool.statistics().reserved_high, 8 * ps::MiB);
    EXPECT_EQ(pool.statistics().in_use, 0U);
  }
}

TEST(Pipeline, AnExceptionNamesStageAndItem) {
  for (const std::string stage : {"read", "upload", "compute", "download", "write"}) {
    FiveStages five(3);
    five.on_stage = [&](const std::string& name, ps::Item& item) {
      if (name == stage && item.index() == 7) throw std::out_of_range("seven");
    };
    try {
      five.pipeline.run({.items = 50});
      FAIL() << "no error from " << stage;
    } catch (const ps::PipelineError& error) {
      EXPECT_EQ(error.stage(), stage);
      EXPECT_EQ(error.item(), 7U);
      EXPECT_NE(std::string(error.what()).find("seven"), std::string::npos);
      EXPECT_THROW(std::rethrow_exception(error.cause()), std::out_of_range);
    }
    five.on_stage = nullptr;
    five.written.clear();
    five.pipeline.run({.items = 20});  // every slot is back
    five.check(20);
  }
}

TEST(Pipeline, AnExceptionInAHostCallbackIsThePipelinesError) {
  ps::Pipeline pipeline({.device = cpu});
  const auto first = pipeline.stage("first", {}, [](ps::Item& item) {
    item.stream().call([i = item.index()] {
      if (i == 11) throw std::runtime_error("eleven");
    });
  });
  pipeline.stage("second", {.after = {first}}, [](ps::Item&) {});
  try {
    pipeline.run({.items = 100});
    FAIL() << "no error";
  } catch (const ps::PipelineError& error) {
    EXPECT_EQ(error.stage(), "first");
    EXPECT_EQ(error.item(), 11U);
  }
}

TEST(Pipeline, CancellationStopsEarlyAndLeavesItUsable) {
  FiveStages five(3);
  std::stop_source source;
  five.on_stage = [&](const std::string& stage, ps::Item& item) {
    if (stage == "compute" && item.index() == 40) source.request_stop();
  };
  const auto report = five.pipeline.run({.items = 1'000'000, .stop = source.get_token()});
  EXPECT_TRUE(report.cancelled);
  EXPECT_LT(report.items, 1000U);
  five.on_stage = nullptr;
  five.written.clear();
  EXPECT_FALSE(five.pipeline.run({.items = 30}).cancelled);
  five.check(30);
}

TEST(Pipeline, CancelledBeforeItStarts) {
  FiveStages five(2);
  std::stop_source source;
  source.request_stop();
  const auto report = five.pipeline.run({.items = 10, .stop = source.get_token()});
  EXPECT_TRUE(report.cancelled);
  EXPECT_LE(report.items, 1U);
}

TEST(Pipeline, ProgressEndsWithEverythingDone) {
  FiveStages five(2);
  std::vector<std::uint64_t> seen;
  const auto caller = std::this_thread::get_id();
  five.pipeline.run({.items = 100, .progress = [&](const ps::Progress& progress) {
                       EXPECT_EQ(std::this_thread::get_id(), caller);
                       EXPECT_EQ(progress.items, 100U);
                       EXPECT_GE(progress.done, seen.empty() ? 0 : seen.back());
                       seen.push_back(progress.done);
                     }});
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back(), 100U);
}

TEST(Pipeline, AProgressFunctionThatThrowsEndsTheRun) {
  FiveStages five(2);
  EXPECT_THROW(five.pipeline.run(
                   {.items = 100,
                    .progress = [](const ps::Progress&) { throw std::domain_error("enough"); }}),
               std::domain_error);
  five.written.clear();
  five.pipeline.run({.items = 10});
  five.check(10);
}

class Collector final : public ps::Recorder {
 public:
  void record(const ps::Interval& interval) noexcept override {
    const std::lock_guard lock(mutex_);
    ++count[std::string(interval.stage)];
    ordered = ordered && interval.begin_ns <= interval.end_ns && interval.begin_ns >= 0;
  }
  std::map<std::string, int> count;
  bool ordered = true;

 private:
  std::mutex mutex_;
};

TEST(Pipeline, RecordsEveryStageOfEveryItem) {
  FiveStages five(4);
  Collector collector;
  five.pipeline.run({.items = 60, .recorder = &collector});
  five.check(60);
  for (const char* stage : {"read", "upload", "compute", "download", "write"}) {
    EXPECT_EQ(collector.count[stage], 60) << stage;
  }
  EXPECT_TRUE(collector.ordered);
}

TEST(Pipeline, StartsBehindTheCallersStream) {
  const ps::Stream stream(cpu);
  std::atomic<bool> before{false};
  stream.call([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    before = true;
  });
  ps::Pipeline pipeline({.device = cpu});
  std::atomic<int> early{0};
  pipeline.host_stage("host", {}, [&](ps::Item&) { early += before ? 0 : 1; });
  pipeline.stage("device", {},
                 [&](ps::Item& item) { item.stream().call([&] { early += before ? 0 : 1; }); });
  pipeline.run({.items = 5, .after = stream});
  EXPECT_EQ(early, 0);
}

TEST(Pipeline, RefusesGraphsThatCannotWork) {
  const auto nothing = [](ps::Item&) {};
  EXPECT_THROW(ps::Pipeline({.device = cpu, .depth = 0}), ps::InvalidArgument);
  ps::Pipeline pipeline({.device = cpu});
  EXPECT_THROW(pipeline.run({.items = 1}), ps::InvalidArgument);
  EXPECT_THROW(pipeline.ring("r", {.bytes = 0}), ps::InvalidArgument);
  EXPECT_THROW(pipeline.ring("r", {.memory = ps::Memory::host, .bytes = 1}), ps::InvalidArgument);
  EXPECT_THROW(pipeline.ring("r", {.bytes = ~std::size_t{0}}), ps::InvalidArgument);
  EXPECT_THROW(pipeline.stage("", {}, nothing), ps::InvalidArgument);
  EXPECT_THROW(pipeline.stage("s", {}, nullptr), ps::InvalidArgument);
  EXPECT_THROW(pipeline.stage("s", {.after = {ps::StageId{}}}, nothing), ps::InvalidArgument);
  EXPECT_THROW(pipeline.stage("s", {.uses = {ps::RingId{}}}, nothing), ps::InvalidArgument);
  const auto ring = pipeline.ring("ring", {.bytes = 8});
  pipeline.stage("a", {.uses = {ring}}, nothing);
  EXPECT_THROW(pipeline.stage("a", {}, nothing), ps::InvalidArgument);
  // A stage that uses a ring without following the stage that acquires its slots.
  EXPECT_THROW(pipeline.stage("b", {.uses = {ring}}, nothing), ps::InvalidArgument);
  const auto unused = pipeline.ring("unused", {.bytes = 8});
  EXPECT_THROW(pipeline.run({.items = 1}), ps::InvalidArgument);
  static_cast<void>(unused);
}

TEST(Pipeline, RefusesMisuseInsideAStage) {
  ps::Pipeline pipeline({.device = cpu});
  const auto ring = pipeline.ring("ring", {.bytes = 8});
  const auto foreign = pipeline.ring("foreign", {.bytes = 8});
  pipeline.stage("owner", {.uses = {foreign}}, [](ps::Item&) {});
  int refused = 0;
  const auto expect_refusal = [&refused](const auto& function) {
    try {
      function();
    } catch (const ps::InvalidArgument&) {
      ++refused;
    }
  };
  pipeline.host_stage("host", {.uses = {ring}}, [&](ps::Item& item) {
    expect_refusal([&] { item.stream(); });
    expect_refusal([&] { item.scratch(8); });
    expect_refusal([&] { item.slot(foreign); });
    expect_refusal([&] { item.slot(ps::RingId{}); });
    expect_refusal([&] { pipeline.run({.items = 1}); });
    expect_refusal([&] { pipeline.stage("late", {}, [](ps::Item&) {}); });
  });
  pipeline.run({.items = 1});
  EXPECT_EQ(refused, 6);
}

}  // namespace
