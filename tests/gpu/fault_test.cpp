// Runs that fail or are cancelled on a GPU: the error has its cause, and the pipeline runs again.
// The fake driver fails every call in turn; this is a sample of it on the real one.
#include <optional>
#include <random>
#include <stdexcept>
#include <string>

#include "gpu/gpu_pipeline.h"
#include "gpu/gpu_test.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "support/cancel_somewhere.h"
#include "support/failure_of.h"

namespace ps::test {
namespace {

class FaultGpu : public GpuTest {
 protected:
  // More items than slots, so that a slot lost would end the run; and all scratch is back.
  void expect_usable(GpuPipeline& pipeline, const Pool& pool) {
    gpu.synchronize();
    EXPECT_EQ(pool.statistics().in_use, 0U);
    pipeline.run_well(10);
    EXPECT_TRUE(no_error_left());
  }
};

TEST_F(FaultGpu, AnyStageThrowsAtAnyItem) {
  constexpr std::uint64_t items = 5;
  for (const bool host_stages : {true, false}) {
    const Pool pool(gpu);
    GpuPipeline pipeline(gpu, {.host_stages = host_stages, .pool = pool});
    for (const std::string& stage : GpuPipeline::stages) {
      if (!host_stages && (stage == "read" || stage == "write")) continue;
      for (std::uint64_t item = 0; item < items; ++item) {
        const std::string here = stage + ", item " + std::to_string(item);
        watchdog.step(here);
        pipeline.hook = [&](const std::string& at, Item& now) {
          if (at == stage && now.index() == item) throw std::domain_error("thrown by " + here);
        };
        try {
          pipeline.run({.items = items});
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
  GpuPipeline pipeline(gpu, {.pool = pool});
  for (const std::uint64_t item : {0U, 3U, 7U}) {
    pipeline.hook = [&](const std::string& at, Item& now) {
      if (at != "compute" || now.index() != item) return;
      now.stream().call([] { throw std::domain_error("from the stream"); });
    };
    try {
      pipeline.run({.items = 8});
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
  GpuPipeline pipeline(gpu, {.pool = pool});
  for (const std::uint64_t item : {0U, 5U, 11U}) {
    pipeline.hook = [&](const std::string& at, Item& now) {
      if (at == "compute" && now.index() == item) now.scratch(128 * MiB);
    };
    const auto failure = failure_of([&] { pipeline.run({.items = 12}); });
    EXPECT_TRUE(is<OutOfMemory>(failure)) << text(failure);
    EXPECT_TRUE(no_error_left());
    pipeline.hook = nullptr;
    expect_usable(pipeline, pool);
  }
  EXPECT_EQ(pool.statistics().failures, 3U);
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

}  // namespace
}  // namespace ps::test
