// The pipeline on a GPU: every byte right, in order, whatever the graph, the sizes and the streams.
#include "penstock/host/pipeline.h"

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gpu/gate.h"
#include "gpu/gpu_pipeline.h"
#include "gpu/gpu_test.h"
#include "penstock/base/recorder.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "penstock/host/pool.h"
#include "penstock/ops/iterate.h"

namespace ps::test {
namespace {

class PipelineGpu : public GpuTest {};

TEST_F(PipelineGpu, DeliversEveryItemInOrderAtEveryDepth) {
  for (const bool host_stages : {true, false}) {
    for (const std::size_t depth : {1, 2, 3, 5}) {
      SCOPED_TRACE(testing::Message() << "depth " << depth << ", host stages " << host_stages);
      GpuPipeline pipeline(gpu, {.depth = depth, .host_stages = host_stages});
      for (const std::uint64_t items : {0U, 1U, 2U, 64U, 3U}) pipeline.run_well(items);
    }
  }
}

TEST_F(PipelineGpu, WaitsInEveryWay) {
  for (const Waiting waiting : {Waiting::poll, Waiting::spin, Waiting::block}) {
    for (const bool host_stages : {true, false}) {
      GpuPipeline pipeline(gpu, {.host_stages = host_stages, .waiting = waiting});
      pipeline.run_well(20);
    }
  }
}

TEST_F(PipelineGpu, AWarmRunAllocatesNothing) {
  for (const bool host_stages : {true, false}) {
    GpuPipeline pipeline(gpu, {.host_stages = host_stages});
    // Slow host functions: as many as can be are on their way at once, each with its event.
    pipeline.delivery = std::chrono::milliseconds(2);
    EXPECT_GT(pipeline.run({.items = GpuPipeline::most_items}).allocations, 0U);
    pipeline.delivery = {};
    EXPECT_EQ(pipeline.run({.items = GpuPipeline::most_items}).allocations, 0U);
  }
}

TEST_F(PipelineGpu, GivesItsScratchBack) {
  const Pool pool(gpu);
  GpuPipeline pipeline(gpu, {.pool = pool});
  pipeline.run_well(30);
  gpu.synchronize();
  EXPECT_EQ(pool.statistics().allocations, 60U);
  EXPECT_EQ(pool.statistics().in_use, 0U);
}

// The ring lets four items be in flight. All items together need far more than the limit.
TEST_F(PipelineGpu, ScratchIsBoundedByWhatIsInFlight) {
  constexpr std::size_t each = 8 * MiB;
  const Pool pool(gpu, {.limit = 16 * each});
  Pipeline pipeline({.device = gpu, .depth = 4, .pool = pool});
  const RingId ring = pipeline.ring("ring", {.memory = Memory::device, .bytes = 16});
  std::map<std::uint64_t, MemoryView> scratch;
  StageId second;
  const StageId first = pipeline.stage("first", {.uses = {ring}}, [&](Item& item) {
    scratch[item.index()] = item.scratch(each, second);
    fill(scratch[item.index()], 1, item.stream());
  });
  second = pipeline.stage("second", {.after = {first}, .uses = {ring}},
                          [&](Item& item) { fill(scratch[item.index()], 2, item.stream()); });
  EXPECT_EQ(pipeline.run({.items = 60}).items, 60U);
  gpu.synchronize();
  EXPECT_EQ(pool.statistics().in_use, 0U);
}

TEST_F(PipelineGpu, StagesRunOnTheStreamsTheyWereGiven) {
  const CallersStream blocking(cudaStreamDefault), non_blocking;
  const std::vector<Stream> streams = {borrow(gpu, blocking.get()), borrow(gpu, nullptr),
                                       borrow(gpu, non_blocking.get())};
  for (const bool host_stages : {true, false}) {
    GpuPipeline pipeline(gpu, {.host_stages = host_stages, .streams = streams});
    pipeline.run_well(20);
    std::set<cudaStream_t> given, used(pipeline.streams().begin(), pipeline.streams().end());
    for (const Stream& stream : streams) given.insert(cuda_stream(stream));
    EXPECT_EQ(used, given);
  }
  // All on one: nothing overlaps, and nothing may deadlock.
  GpuPipeline pipeline(gpu, {.streams = {streams[0]}});
  pipeline.run_well(20);
}

TEST_F(PipelineGpu, ItsOwnStreamsAreNonBlocking) {
  GpuPipeline pipeline(gpu);
  pipeline.run_well(1);
  ASSERT_FALSE(pipeline.streams().empty());
  for (const cudaStream_t stream : pipeline.streams()) {
    unsigned flags = 0;
    EXPECT_EQ(cudaStreamGetFlags(stream, &flags), cudaSuccess);
    EXPECT_EQ(flags, unsigned{cudaStreamNonBlocking});
  }
}

// The caller's stream fills the input late; neither kind of stage may look at it before.
TEST_F(PipelineGpu, StartsBehindTheCallersStream) {
  constexpr std::size_t bytes = 10'001;
  const CallersStream callers;
  const DeviceBuffer input(gpu, bytes);
  const PinnedBuffer output(gpu, bytes);
  for (const cudaStream_t native : {callers.get(), cudaStreamLegacy, cudaStreamPerThread}) {
    const Stream caller = borrow(gpu, native);
    int early = 0;
    std::optional<Gate> gate;
    Pipeline pipeline({.device = gpu});
    pipeline.host_stage("host", {}, [&](Item&) { early += gate->is_open() ? 0 : 1; });
    pipeline.stage("device", {},
                   [&](Item& item) { copy(output.view(), input.view(), item.stream()); });
    pipeline.run({.items = 0});  // makes what the next run needs
    gate.emplace(native);
    std::memset(output.view().data, poison, bytes);
    ASSERT_EQ(cudaMemsetAsync(input.view().data, 5, bytes, native), cudaSuccess);
    {
      const std::jthread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        gate->open();
      });
      EXPECT_EQ(pipeline.run({.items = 3, .after = caller}).items, 3U);
    }
    EXPECT_EQ(early, 0);
    const auto* got = output.view().as<std::uint8_t>();
    EXPECT_TRUE(all_are({got, got + bytes}, 5));
    ASSERT_EQ(cudaMemset(input.view().data, poison, bytes), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
}

// source -> {left, right} -> join, with rings of different depths: the join sees both of one item.
TEST_F(PipelineGpu, FansOutAndIn) {
  constexpr std::size_t count = 1237, items = 50;
  constexpr std::size_t bytes = count * sizeof(float);
  const PinnedBuffer input(gpu, items * bytes), output(gpu, items * 2 * bytes);
  for (std::size_t i = 0; i < items * count; ++i) {
    input.view().as<float>()[i] = static_cast<float>(i % 1009) - 500.0F;
  }
  std::memset(output.view().data, poison, output.bytes());

  Pipeline pipeline({.device = gpu, .depth = 2});
  const auto a = pipeline.ring("a", {.memory = Memory::device, .bytes = bytes, .depth = 3});
  const auto b = pipeline.ring("b", {.memory = Memory::device, .bytes = bytes});
  const auto c = pipeline.ring("c", {.memory = Memory::device, .bytes = bytes, .depth = 1});
  const auto source = pipeline.stage("source", {.uses = {a}}, [&](Item& item) {
    copy(item.slot(a), input.view().sub(item.index() * bytes, bytes), item.stream());
  });
  const auto work = [&](RingId to, int rounds) {
    return [&, to, rounds](Item& item) {
      iterate({.in = floats(item.slot(a), 0, count),
               .out = floats(item.slot(to), 0, count),
               .rounds = rounds},
              item.stream());
    };
  };
  const auto left = pipeline.stage("left", {.after = {source}, .uses = {a, b}}, work(b, 2));
  const auto right = pipeline.stage("right", {.after = {source}, .uses = {a, c}}, work(c, 7));
  pipeline.stage("join", {.after = {left, right}, .uses = {b, c}}, [&](Item& item) {
    const std::size_t at = item.index() * 2 * bytes;
    copy(output.view().sub(at, bytes), item.slot(b), item.stream());
    copy(output.view().sub(at + bytes, bytes), item.slot(c), item.stream());
  });
  EXPECT_EQ(pipeline.run({.items = items}).items, items);

  std::vector<float> expected(items * 2 * count);
  for (std::size_t item = 0; item < items; ++item) {
    for (std::size_t i = 0; i < count; ++i) {
      const float x = input.view().as<float>()[item * count + i];
      expected[item * 2 * count + i] = iterated(x, 2);
      expected[(item * 2 + 1) * count + i] = iterated(x, 7);
    }
  }
  EXPECT_EQ(std::memcmp(output.view().data, expected.data(), output.bytes()), 0);
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

TEST_F(PipelineGpu, RecordsEveryStageOfEveryItem) {
  for (const bool host_stages : {true, false}) {
    GpuPipeline pipeline(gpu, {.host_stages = host_stages});
    Intervals intervals;
    EXPECT_EQ(pipeline.run({.items = 40, .recorder = &intervals}).items, 40U);
    EXPECT_TRUE(intervals.ordered);
    EXPECT_EQ(intervals.seen.size(), host_stages ? 200U : 120U);
    EXPECT_EQ(std::set(intervals.seen.begin(), intervals.seen.end()).size(), intervals.seen.size());
  }
}

}  // namespace
}  // namespace ps::test
