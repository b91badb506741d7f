// Kernels are measured, the choices kept, and calls run what was chosen.
#include "penstock/measure/tune.h"

#include <cuda.h>

#include <array>

#include "gpu/gpu_test.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/transform.h"
#include "penstock/ops/transform/tuning.h"
#include "support/environment.h"
#include "support/temporary_directory.h"

namespace ps::test {
namespace {

// Threads of a block of the one kernel in what `stream` is given. The library has a CUDA runtime of
// its own, whose kernels ours does not know: the driver knows both.
template <class Run>
unsigned threads_of(const Stream& stream, const Run& run) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuGraphKernelNodeGetParams", &found, 12000,
                                             cudaEnableDefault, &result),
            cudaSuccess);
  const auto parameters_of = reinterpret_cast<decltype(&cuGraphKernelNodeGetParams)>(found);
  cudaStream_t native = cuda_stream(stream);
  EXPECT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeGlobal), cudaSuccess);
  run();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  std::array<cudaGraphNode_t, 2> nodes{};
  std::size_t count = nodes.size();
  EXPECT_EQ(cudaGraphGetNodes(graph, nodes.data(), &count), cudaSuccess);
  EXPECT_EQ(count, 1u);
  CUDA_KERNEL_NODE_PARAMS parameters{};
  EXPECT_EQ(parameters_of(nodes[0], &parameters), CUDA_SUCCESS);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  return parameters.blockDimX;
}

class TuneGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (gpu.capabilities().compute_major != 9) GTEST_SKIP() << "one kernel: nothing to choose";
    reload_choices();
  }
  void TearDown() override {
    reload_choices();
    GpuTest::TearDown();
  }

  void keep(const std::string& problem, const std::string& kernel) const {
    Choices choices{.key = machine_key(gpu), .operators = {}};
    choices.operators["transform"][problem] = {kernel, "2026-11-15T08:30:00Z"};
    save_choices(choices_path(), choices);
    reload_choices();
  }

  // Every problem of an operator is measured, each with two kernels of the same bits, and what was
  // chosen is used then.
  void expect_measured(const std::string& op) const {
    TuneOptions options = quick_tune();
    options.op = op;
    options.bytes = 32 * MiB;
    const Tuning tuning = tune(gpu, options);
    std::size_t problems = 0;
    for (const ProblemState& each : tune_state(gpu, op).problems) {
      EXPECT_TRUE(each.measured.empty()) << "tune() keeps nothing itself";
      ++problems;
    }
    EXPECT_EQ(tuning.problems.size(), problems);
    EXPECT_GT(problems, 0u);
    for (const TunedProblem& each : tuning.problems) {
      EXPECT_TRUE(each.unfit.empty()) << each.problem << " has other bits by " << each.unfit[0];
      ASSERT_EQ(each.times.size(), 2u) << each.problem;
      for (const KernelTime& time : each.times) EXPECT_GT(time.copy_share, 0) << each.problem;
      EXPECT_TRUE(each.chosen == each.times[0].kernel || each.gain > each.noise) << each.problem;
    }

    save_choices(choices_path(), choices_of(tuning));
    reload_choices();
    const TuneState state = tune_state(gpu, op);
    EXPECT_TRUE(state.warnings.empty());
    ASSERT_EQ(state.problems.size(), tuning.problems.size());
    for (std::size_t i = 0; i < state.problems.size(); ++i) {
      EXPECT_EQ(state.problems[i].problem, tuning.problems[i].problem);
      EXPECT_EQ(state.problems[i].used, tuning.problems[i].chosen);
      EXPECT_EQ(state.problems[i].measured, tuning.date);
    }
  }

  TemporaryDirectory folder;
  Variable cache{"PENSTOCK_CACHE", folder.path()};
};

// The first call after a reload reads the file, here while the stream is recording.
TEST_F(TuneGpu, CallsRunWhatWasChosenUnlessTheyNameAKernel) {
  constexpr unsigned portable = elementwise::PlainTuning::threads,
                     sm90 = elementwise::BulkTuning::threads;
  static_assert(portable != sm90);
  const Stream stream(gpu);
  const DeviceBuffer memory(gpu, 1 << 20);
  const TensorView x = floats(memory.view(), 0, 1 << 18);
  const auto threads = [&](TransformKernel kernel) {
    return threads_of(stream, [&] { mul({.x = x, .y = x, .out = x, .kernel = kernel}, stream); });
  };
  // Both kernels once, so that a recorded call has nothing to load.
  for (const TransformKernel kernel : {TransformKernel::portable, TransformKernel::sm90}) {
    mul({.x = x, .y = x, .out = x, .kernel = kernel}, stream);
  }
  stream.synchronize();
  reload_choices();
  EXPECT_EQ(threads(TransformKernel::best), sm90) << "built in";
  for (const unsigned wanted : {portable, sm90, portable}) {
    keep("mul f32", wanted == portable ? "portable" : "sm90");
    EXPECT_EQ(threads(TransformKernel::best), wanted);
    EXPECT_EQ(threads(TransformKernel::portable), portable);
    EXPECT_EQ(threads(TransformKernel::sm90), sm90);
  }
  folder.write("choices.json", "{");
  reload_choices();
  EXPECT_EQ(threads(TransformKernel::best), sm90) << "of a damaged file";
}

TEST_F(TuneGpu, MeasuresEveryProblemOfTransformWithTheSameBits) { expect_measured("transform"); }

TEST_F(TuneGpu, MeasuresEveryProblemOfResampleWithTheSameBits) { expect_measured("resample"); }

}  // namespace
}  // namespace ps::test
