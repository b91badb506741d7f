#include "penstock/ops/round_routes.h"

#include <cstdint>

#include "gpu/copies.h"
#include "gpu/gpu_test.h"
#include "gpu/recording.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "support/rounding.h"

namespace ps::test {
namespace {

class RoundRoutesGpu : public GpuTest {
 protected:
  void expect_the_bits_of_the_cpu(std::uint32_t seed, const RoundingShape& shape) const {
    const Stream stream(gpu), on_cpu(Device::cpu());
    const Pool pool(gpu), cpu_pool{Device::cpu()};
    RoundingCall here(seed, shape), there(seed, shape);
    Copies copies(gpu, stream);
    RoundRoutesOptions options = there.options([&](Strided& array) { return copies.of(array); });
    options.pool = &pool;
    round_routes(options, stream);
    copies.fetch();
    RoundRoutesOptions plain = here.options();
    plain.pool = &cpu_pool;
    round_routes(plain, on_cpu);
    on_cpu.synchronize();
    ASSERT_EQ(there.wrong(), "") << "with seed " << seed;
    ASSERT_EQ(there.rounded_ids().bytes(), here.rounded_ids().bytes()) << "with seed " << seed;
    ASSERT_EQ(there.rounded_weights().bytes(), here.rounded_weights().bytes())
        << "with seed " << seed;
    ASSERT_EQ(there.changes().bytes(), here.changes().bytes()) << "with seed " << seed;
  }
};

TEST_F(RoundRoutesGpu, GivesTheBitsOfTheCpu) {
  for (std::uint32_t seed = 1; seed <= 200 && !HasFatalFailure(); ++seed) {
    expect_the_bits_of_the_cpu(seed, rounding_shape(seed));
  }
}

TEST_F(RoundRoutesGpu, ManyTokensAndExperts) {
  for (std::uint32_t seed = 1; seed <= 3 && !HasFatalFailure(); ++seed) {
    expect_the_bits_of_the_cpu(
        seed, {.tokens = 5000, .experts = 512, .choices = 8, .extra = 2, .tile = 64});
  }
}

TEST_F(RoundRoutesGpu, MayBeCaptured) {
  const Stream stream(gpu);
  const RoundingShape shape{.experts = 16, .extra = 1, .logit_type = DType::bf16, .row_padding = 3};
  RoundingCall call(1, shape);
  Copies copies(gpu, stream);
  RoundRoutesOptions options = call.options([&](Strided& array) { return copies.of(array); });
  const DeviceBuffer workspace(gpu, round_routes_workspace_bytes(options));
  options.workspace = workspace.view();
  round_routes(options, stream);  // loads the kernels
  stream.synchronize();
  Recording recording(cuda_stream(stream));
  round_routes(options, stream);
  EXPECT_TRUE(recording.active());
  recording.replay(cuda_stream(stream));
  copies.fetch();
  EXPECT_EQ(call.wrong(), "");
  EXPECT_GT(call.refused(), 0) << "every token had places for all experts that would take it";
}

}  // namespace
}  // namespace ps::test
