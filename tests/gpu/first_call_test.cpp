// Calls that are captured into a graph although no kernel of them has run yet. Each case has a
// process of its own: this program again, running one of the disabled tests below.
#include <string>
#include <vector>

#include "gpu/attention_gpu.h"
#include "gpu/gpu_test.h"
#include "gpu/recording.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/iterate.h"
#include "support/child.h"

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

using FirstCallAlone = AttentionGpuTest;

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

}  // namespace
}  // namespace ps::test
