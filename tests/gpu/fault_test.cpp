// Runs that fail or are cancelled on a GPU: the error has its cause, and the pipeline runs again.
// The fake driver fails every call in turn; this is a sample of it on the real one. With one slot
// per ring the window holds 16 items, so the runs here fill it, wait, and fill it again.
#include <atomic>
#include <chrono>
#include <iterator>
#include <optional>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>

#include "gpu/gpu_pipeline.h"
#include "gpu/gpu_test.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "support/cancel_somewhere.h"
#include "support/failure_of.h"

namespace ps::test {
namespace {

constexpr std::uint64_t several_windows = 40;
// At the window's edges, and in between.
constexpr std::uint64_t places[] = {0, 1, 7, 8, 15, 16, 17, 24, 33, several_windows - 1};

class FaultGpu : public GpuTest {
 protected:
  // More items than slots, so that a lost slot would hang the run; and all scratch is back.
  void expect_usable(GpuPipeline& pipeline, const Pool& pool) {
    gpu.synchronize();
    EXPECT_EQ(pool.statistics().in_use, 0U);
    pipeline.run_well(several_windows);
    EXPECT_TRUE(no_error_left());
  }
};

TEST_F(FaultGpu, AnyStageThrowsAtAnyItem) {
  for (const bool host_stages : {true, false}) {
    const Pool pool(gpu);
    GpuPipeline pipeline(gpu, {.depth = 1, .host_stages = host_stages, .pool = pool});
    for (const std::string& stage : GpuPipeline::stages) {
      if (!host_stages && (stage == "read" || stage == "write")) continue;
      for (const std::uint64_t item : places) {
        const std::string here = stage + ", item " + std::to_string(item);
        watchdog.step(here);
        pipeline.hook = [&](const std::string& at, Item& now) {
          if (at == stage && now.index() == item) throw std::domain_error("thrown by " + here);
        };
        try {
          pipeline.run({.items = several_windows});
          ADD_FAILURE() << here << " was not reported";
        } catch (const PipelineError& error) {
          EXPECT_EQ(error.stage(), stage);
          EXPECT_EQ(error.item(), item);
          EXPECT_TRUE(is<std::domain_error>(error.cause())) << error.what();
        }
        pipeline.hook = nullptr;
        expect_usable(pipeline, pool);
      }
    }
  }
}

TEST_F(FaultGpu, AHostFunctionInAStreamThrows) {
  const Pool pool(gpu);
  GpuPipeline pipeline(gpu, {.depth = 1, .pool = pool});
  for (const std::uint64_t item : places) {
    pipeline.hook = [&](const std::string& at, Item& now) {
      if (at != "compute" || now.index() != item) return;
      now.stream().call([] { throw std::domain_error("from the stream"); });
    };
    try {
      pipeline.run({.items = several_windows});
      ADD_FAILURE() << "item " << item << " was not reported";
    } catch (const PipelineError& error) {
      EXPECT_EQ(error.stage(), "compute");
      EXPECT_EQ(error.item(), item);
      EXPECT_TRUE(is<std::domain_error>(error.cause())) << error.what();
    }
    pipeline.hook = nullptr;
    expect_usable(pipeline, pool);
  }
}

TEST_F(FaultGpu, MemoryRunsOutInTheMiddle) {
  const Pool pool(gpu, {.limit = 64 * MiB});
  GpuPipeline pipeline(gpu, {.depth = 1, .pool = pool});
  for (const std::uint64_t item : places) {
    pipeline.hook = [&](const std::string& at, Item& now) {
      if (at == "compute" && now.index() == item) now.scratch(128 * MiB);
    };
    const auto failure = failure_of([&] { pipeline.run({.items = several_windows}); });
    EXPECT_TRUE(is<OutOfMemory>(failure)) << text(failure);
    EXPECT_TRUE(no_error_left());
    pipeline.hook = nullptr;
    expect_usable(pipeline, pool);
  }
  EXPECT_EQ(pool.statistics().failures, std::size(places));
}

TEST_F(FaultGpu, SlotsThatCannotBeHadFailTheRunBeforeItStarts) {
  Pipeline pipeline({.device = gpu, .depth = 2});
  const auto small = pipeline.ring("small", {.memory = Memory::pinned, .bytes = 64});
  const auto vast =
      pipeline.ring("vast", {.memory = Memory::device, .bytes = std::size_t{1} << 50});
  bool ran = false;
  pipeline.stage("stage", {.uses = {small, vast}}, [&](Item&) { ran = true; });
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THROW(pipeline.run({.items = 3}), OutOfMemory);
    EXPECT_TRUE(no_error_left());
  }
  EXPECT_FALSE(ran);
}

TEST_F(FaultGpu, CancelledAtRandomPoints) {
  constexpr unsigned runs = 100, runs_per_pipeline = 10;
  const Pool pool(gpu);
  std::optional<GpuPipeline> pipeline;
  for (unsigned seed = 1; seed <= runs; ++seed) {
    const std::string here = "seed " + std::to_string(seed);
    watchdog.step(here);
    std::minstd_rand random(seed);
    if (seed % runs_per_pipeline == 1) {
      pipeline.emplace(
          gpu, GpuPipelineOptions{
                   .depth = 1 + random() % 4, .host_stages = random() % 3 != 0, .pool = pool});
    }
    const auto failure = failure_of([&] { cancel_somewhere(*pipeline, random); });
    EXPECT_FALSE(failure) << here << ": " << text(failure);
    expect_usable(*pipeline, pool);
    ASSERT_FALSE(HasFailure()) << here;
  }
}

// What is enqueued has to complete, so with slow items it must be little.
TEST_F(FaultGpu, ACancelledRunOfSlowItemsEndsSoon) {
  for (const Waiting waiting : {Waiting::poll, Waiting::spin, Waiting::block}) {
    Pipeline pipeline({.device = gpu, .waiting = waiting});
    std::atomic<std::uint64_t> ran{0};
    pipeline.stage("slow", {}, [&](Item& item) {
      item.stream().call([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ++ran;
      });
    });
    std::stop_source source;
    std::uint64_t ran_before = 0;
    const RunReport report = pipeline.run(
        {.items = 100, .stop = source.get_token(), .progress = [&](const Progress& progress) {
           if (progress.done < 3) return;
           if (!source.stop_requested()) ran_before = ran;
           source.request_stop();
         }});
    EXPECT_TRUE(report.cancelled);
    EXPECT_LE(ran - ran_before, 4U) << "200 ms of work";
    EXPECT_LE(ran_before, 12U) << "progress was reported late";
  }
}

}  // namespace
}  // namespace ps::test
