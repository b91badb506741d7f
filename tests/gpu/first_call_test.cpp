// Calls that are captured into a graph although no kernel of them has run yet. Each case has a
// process of its own: this program again, running one of the disabled tests below.
#include <random>
#include <string>
#include <vector>

#include "gpu/attention_gpu.h"
#include "gpu/gpu_test.h"
#include "gpu/moe_gpu.h"
#include "gpu/recording.h"
#include "gpu/resample_call.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/iterate.h"
#include "support/child.h"
#include "support/gemm_random.h"
#include "support/rounding.h"
#include "support/route_random.h"

namespace ps::test {
namespace {

class FirstCallGpu : public GpuTest {
 protected:
  static void expect_captured(const std::string& test) {
    const Ended ended = run_disabled_test("FirstCallAlone.DISABLED_" + test);
    EXPECT_EQ(ended.signal, 0) << ended.out << ended.err;
    EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
    EXPECT_NE(ended.out.find("1 test from 1 test suite ran"), std::string::npos) << ended.out;
  }
};

TEST_F(FirstCallGpu, OfAttentionIsCaptured) { expect_captured("Attention"); }
TEST_F(FirstCallGpu, OfPortableAttentionIsCaptured) { expect_captured("PortableAttention"); }
TEST_F(FirstCallGpu, OfDecodingIsCaptured) { expect_captured("Decoding"); }
TEST_F(FirstCallGpu, OfIterateIsCaptured) { expect_captured("Iterate"); }
TEST_F(FirstCallGpu, OfMoeIsCaptured) { expect_captured("Moe"); }
TEST_F(FirstCallGpu, OfMoeThatCountsIsCaptured) { expect_captured("MoeThatCounts"); }
TEST_F(FirstCallGpu, OfPortableMoeIsCaptured) { expect_captured("PortableMoe"); }
TEST_F(FirstCallGpu, OfRouteIsCaptured) { expect_captured("Route"); }
TEST_F(FirstCallGpu, OfRoundRoutesIsCaptured) { expect_captured("RoundRoutes"); }
TEST_F(FirstCallGpu, OfGemmIsCaptured) { expect_captured("Gemm"); }
TEST_F(FirstCallGpu, OfPortableGemmIsCaptured) { expect_captured("PortableGemm"); }
TEST_F(FirstCallGpu, OfResampleIsCaptured) { expect_captured("Resample"); }

class FirstCallAlone : public AttentionGpuTest {
 protected:
  // Captures call(), which enqueues an operator on the stream, and replays it.
  template <class Call>
  static void capture(const Stream& stream, const Call& call) {
    stream.synchronize();
    Recording recording(cuda_stream(stream));
    call();
    EXPECT_TRUE(recording.active());
    recording.replay(cuda_stream(stream));
  }

  void expect_moe_captured(const MoeShape& shape, MoeKernel kernel) const {
    std::mt19937 random(1);
    const MoeNumbers numbers(shape, random);
    const Stream stream(gpu);
    MoeArrays arrays(numbers);
    OnGpu there(arrays, gpu, stream);
    there.options().kernel = kernel;
    capture(stream, [&] { moe(there.options(), stream); });
    there.fetch();
    EXPECT_EQ(wrong(arrays.out(), expected(numbers)), "");
  }

  void expect_gemm_captured(GemmKernel kernel) const {
    const Stream stream(gpu);
    RandomGemm call(1, {.m = 130, .n = 136, .k = 72, .aligned = true});
    Copies copies(gpu, stream);
    GemmOptions options = call.placed([&](Strided& array) { return copies.of(array); });
    options.kernel = kernel;
    capture(stream, [&] { gemm(options, stream); });
    copies.fetch();
    EXPECT_EQ(call.wrong(), "");
  }
};

// The best kernel, and the one that lists its tiles.
TEST_F(FirstCallAlone, DISABLED_Attention) {
  expect_right_in_a_graph({.q_rows = 300,
                           .k_rows = 300,
                           .dim = 128,
                           .dim_v = 128,
                           .causal = true,
                           .cu_q = {0, 100, 300},
                           .cu_k = {0, 100, 300}},
                          AttentionKernel::best);
}

TEST_F(FirstCallAlone, DISABLED_PortableAttention) {
  expect_right_in_a_graph({.q_rows = 100, .k_rows = 100, .dim = 64, .dim_v = 64},
                          AttentionKernel::portable);
}

// The kernel that combines parts, too.
TEST_F(FirstCallAlone, DISABLED_Decoding) {
  expect_right_in_a_graph({.q_rows = 1, .k_rows = 3000, .heads_q = 8, .dim = 128, .dim_v = 128},
                          AttentionKernel::best);
}

// Its kernel is launched without being asked for anything first.
TEST_F(FirstCallAlone, DISABLED_Iterate) {
  constexpr std::size_t count = 1000;
  const Stream stream(gpu);
  const DeviceBuffer memory(gpu, count * sizeof(float));
  fill(memory.view(), 0, stream);
  stream.synchronize();
  const TensorView data = floats(memory.view(), 0, count);
  Recording recording(cuda_stream(stream));
  iterate({.in = data, .out = data}, stream);
  EXPECT_TRUE(recording.active());
  recording.replay(cuda_stream(stream));
  stream.synchronize();
  const std::vector<float> found = fetch<float>(memory.view(), 0, count, stream);
  for (const float value : found) ASSERT_EQ(value, iterated(0, 1));
}

TEST_F(FirstCallAlone, DISABLED_Moe) {
  if (!is_hopper()) GTEST_SKIP() << "needs compute capability 9.0";
  expect_moe_captured({.tokens = 300, .choices = 2, .hidden = 136, .width = 200, .experts = 5},
                      MoeKernel::large);
}

// The kernels of `decode` and of `large` are both enqueued, and the counts of rows choose.
TEST_F(FirstCallAlone, DISABLED_MoeThatCounts) {
  if (!is_hopper()) GTEST_SKIP() << "needs compute capability 9.0";
  expect_moe_captured({.tokens = 150, .choices = 2, .hidden = 136, .width = 200, .experts = 30},
                      MoeKernel::best);
}

TEST_F(FirstCallAlone, DISABLED_PortableMoe) {
  expect_moe_captured({.tokens = 100, .choices = 2, .hidden = 64, .width = 72, .experts = 5},
                      MoeKernel::portable);
}

TEST_F(FirstCallAlone, DISABLED_Route) {
  const Stream stream(gpu);
  RandomRoute call(1, {.tokens = 100});
  Copies copies(gpu, stream);
  const RouteOptions options = call.placed([&](Strided& array) { return copies.of(array); });
  capture(stream, [&] { route(options, stream); });
  copies.fetch();
  EXPECT_EQ(call.wrong(), "");
}

TEST_F(FirstCallAlone, DISABLED_RoundRoutes) {
  const Stream stream(gpu);
  RoundingCall call(1, {});
  Copies copies(gpu, stream);
  RoundRoutesOptions options = call.options([&](Strided& array) { return copies.of(array); });
  const DeviceBuffer workspace(gpu, round_routes_workspace_bytes(options));
  options.workspace = workspace.view();
  capture(stream, [&] { round_routes(options, stream); });
  copies.fetch();
  EXPECT_EQ(call.wrong(), "");
}

TEST_F(FirstCallAlone, DISABLED_Gemm) { expect_gemm_captured(GemmKernel::best); }
TEST_F(FirstCallAlone, DISABLED_PortableGemm) { expect_gemm_captured(GemmKernel::portable); }

// A long call and a short one, which have kernels of their own.
TEST_F(FirstCallAlone, DISABLED_Resample) {
  const Stream stream(gpu), on_cpu(Device::cpu());
  for (const Shape& shape : {shapes[0], short_shapes[0]}) {
    const ResampleCall fresh(shape, 7);
    ResampleCall here = fresh, there = fresh;
    resample(here.options([](Strided& array) { return array.view(); }, Interpolation::linear,
                          Outside::clamp),
             on_cpu);
    on_cpu.synchronize();
    Copies copies(gpu, stream);
    const ResampleOptions options = there.options([&](Strided& array) { return copies.of(array); },
                                                  Interpolation::linear, Outside::clamp);
    capture(stream, [&] { resample(options, stream); });
    copies.fetch();
    EXPECT_EQ(here.out().bytes(), there.out().bytes());
  }
}

}  // namespace
}  // namespace ps::test
