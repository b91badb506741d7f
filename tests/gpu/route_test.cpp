#include "penstock/ops/route.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/copies.h"
#include "gpu/gpu_test.h"
#include "gpu/recording.h"
#include "penstock/base/error.h"
#include "penstock/host/cuda.h"
#include "support/route_random.h"

namespace ps::test {
namespace {

class RouteGpu : public GpuTest {
 protected:
  // The same call on both devices: the same bits, in poisoned results with margins.
  void expect_the_bits_of_the_cpu(std::uint32_t seed, RouteShape shape = {}) const {
    const Stream stream(gpu), on_cpu(Device::cpu());
    RandomRoute here(seed, shape), there(seed, shape);
    Copies copies(gpu, stream);
    route(there.placed([&](Strided& array) { return copies.of(array); }), stream);
    copies.fetch();
    route(here.options(), on_cpu);
    on_cpu.synchronize();
    ASSERT_EQ(there.ids().bytes(), here.ids().bytes())
        << "seed " << seed << ": " << here.describe();
    ASSERT_EQ(there.weights().bytes(), here.weights().bytes())
        << "seed " << seed << ": " << here.describe();
  }
};

TEST_F(RouteGpu, AgreesWithAPlainSort) {
  const Stream stream(gpu);
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    RandomRoute call(seed);
    Copies copies(gpu, stream);
    route(call.placed([&](Strided& array) { return copies.of(array); }), stream);
    copies.fetch();
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

TEST_F(RouteGpu, GivesTheBitsOfTheCpu) {
  for (std::uint32_t seed = 1; seed <= 1000 && !HasFatalFailure(); ++seed) {
    expect_the_bits_of_the_cpu(seed);
  }
}

TEST_F(RouteGpu, AnyNumberOfExpertsAndChoices) {
  std::uint32_t seed = 0;
  for (const int experts : {1, 2, 3, 31, 32, 33, 64, 65, 100, 128, 129, 256, 257, 512}) {
    for (int choices = 1; choices <= std::min(16, experts); choices += choices < 4 ? 1 : 4) {
      for (const int scoring : {0, 1, 2}) {
        expect_the_bits_of_the_cpu(++seed,
                                   {.experts = experts, .choices = choices, .scoring = scoring});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(RouteGpu, GroupsOfDeepSeekV3) {
  for (std::uint32_t seed = 1; seed <= 20 && !HasFatalFailure(); ++seed) {
    expect_the_bits_of_the_cpu(seed, {.tokens = 100,
                                      .experts = 256,
                                      .choices = 8,
                                      .scoring = static_cast<int>(RouteScoring::sigmoid),
                                      .groups = 8,
                                      .top_groups = 4});
  }
}

// More than one token per warp.
TEST_F(RouteGpu, ManyTokens) {
  for (std::uint32_t seed = 1; seed <= 6 && !HasFatalFailure(); ++seed) {
    expect_the_bits_of_the_cpu(seed, {.tokens = 30'001 + seed, .experts = 64});
  }
}

TEST_F(RouteGpu, GivesTheSameBitsEveryTime) {
  const Stream stream(gpu);
  const RouteShape shape{.tokens = 5000, .experts = 128, .choices = 8};
  RandomRoute first(7, shape);
  Copies copies(gpu, stream);
  route(first.placed([&](Strided& array) { return copies.of(array); }), stream);
  copies.fetch();
  for (int round = 0; round < 20; ++round) {
    RandomRoute again(7, shape);
    Copies more(gpu, stream);
    route(again.placed([&](Strided& array) { return more.of(array); }), stream);
    more.fetch();
    ASSERT_EQ(again.ids().bytes(), first.ids().bytes()) << "round " << round;
    ASSERT_EQ(again.weights().bytes(), first.weights().bytes()) << "round " << round;
  }
}

TEST_F(RouteGpu, MayBeCaptured) {
  const Stream stream(gpu);
  const RouteShape shape{.tokens = 100};
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    RandomRoute loads(seed, shape);  // the kernel, which a capture does not allow
    Copies unused(gpu, stream);
    route(loads.placed([&](Strided& array) { return unused.of(array); }), stream);
    stream.synchronize();

    RandomRoute call(seed, shape);
    Copies copies(gpu, stream);
    const RouteOptions options = call.placed([&](Strided& array) { return copies.of(array); });
    stream.synchronize();
    Recording recording(cuda_stream(stream));
    route(options, stream);
    EXPECT_TRUE(recording.active());
    recording.replay(cuda_stream(stream));
    copies.fetch();
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

TEST_F(RouteGpu, RefusesHostMemory) {
  const Stream stream(gpu);
  RandomRoute call(1, {.tokens = 2});
  try {
    route(call.options(), stream);
    FAIL() << "accepted memory that the GPU cannot reach";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "logits");
  }
}

}  // namespace
}  // namespace ps::test
