#include "penstock/ops/gemm.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/copies.h"
#include "gpu/gpu_test.h"
#include "gpu/recording.h"
#include "ops/gemm/choice.h"
#include "penstock/base/error.h"
#include "penstock/host/cuda.h"
#include "support/gemm_random.h"

namespace ps::test {
namespace {

class GemmGpu : public GpuTest {
 protected:
  bool has_sm90() const {
    const Capabilities& has = gpu.capabilities();
    return has.compute_major == 9 && has.compute_minor == 0;
  }

  // Runs the call in poisoned memory of the GPU. `out` is as the GPU left it.
  void run(RandomGemm& call, GemmKernel kernel) const {
    const Stream stream(gpu);
    Copies copies(gpu, stream);
    GemmOptions options = call.placed([&](Strided& array) { return copies.of(array); });
    options.kernel = kernel;
    gemm(options, stream);
    copies.fetch();
  }

  // The first kernel of each split agrees with sums in f64, and all others with the same split
  // have its bits.
  void expect_right_and_equal(std::uint32_t seed, const GemmCase& size) const {
    struct First {
      std::string_view name;
      std::vector<std::uint8_t> bytes;
    };
    std::map<unsigned, First> firsts;  // by split
    for (const detail::GemmShape& shape : detail::gemm_shapes) {
      RandomGemm call(seed, size);
      run(call, shape.kernel);
      const auto [first, is_first] =
          firsts.emplace(shape.split, First{shape.name, call.out().bytes()});
      if (is_first) {
        ASSERT_EQ(call.wrong(), "") << shape.name << ", seed " << seed;
      }
      ASSERT_EQ(call.out().bytes(), first->second.bytes)
          << shape.name << ": other bits than " << first->second.name << ", seed " << seed << ": "
          << call.describe();
    }
  }
};

TEST_F(GemmGpu, Sm90KernelsWithTheSameSplitGiveTheSameBits) {
  if (!has_sm90()) GTEST_SKIP() << "needs compute capability 9.0";
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    expect_right_and_equal(seed, random_gemm_case(seed, 300, true));
    if (HasFatalFailure()) return;
  }
}

TEST_F(GemmGpu, AllSm90KernelsOnSizesAroundTheirTiles) {
  if (!has_sm90()) GTEST_SKIP() << "needs compute capability 9.0";
  std::uint32_t seed = 1000;
  for (const std::int64_t m : {1, 64, 65, 128, 129, 257}) {
    for (const std::int64_t n : {8, 64, 72, 192, 256, 264}) {
      for (const std::int64_t k : {8, 64, 72, 520}) {
        expect_right_and_equal(++seed, {.m = m, .n = n, .k = k, .aligned = true});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Few rows and many steps: blocks of a split have whole and broken steps, and steps behind the end.
TEST_F(GemmGpu, AllSm90KernelsOnFewRows) {
  if (!has_sm90()) GTEST_SKIP() << "needs compute capability 9.0";
  std::uint32_t seed = 2000;
  for (const std::int64_t m : {1, 8, 16, 33, 64, 100, 200}) {
    for (const std::int64_t k : {8, 128, 136, 1032, 2056}) {
      expect_right_and_equal(++seed, {.m = m, .n = 264, .k = k, .aligned = true});
      if (HasFatalFailure()) return;
    }
  }
}

// Enough tiles that every block takes several of them, also of the largest.
TEST_F(GemmGpu, AllSm90KernelsOnManyTiles) {
  if (!has_sm90()) GTEST_SKIP() << "needs compute capability 9.0";
  expect_right_and_equal(1, {.m = 9000, .n = 1544, .k = 24, .aligned = true});
  expect_right_and_equal(2, {.m = 3000, .n = 3080, .k = 72, .type = DType::f16, .aligned = true});
}

TEST_F(GemmGpu, PortableTakesAnySizeAndStride) {
  for (std::uint32_t seed = 1; seed <= 100; ++seed) {
    RandomGemm call(seed, random_gemm_case(seed, 300, seed % 4 == 0));
    run(call, GemmKernel::portable);
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

TEST_F(GemmGpu, BestTakesAnySizeAndStride) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    RandomGemm call(seed, random_gemm_case(seed, 300, seed % 2 == 0));
    run(call, GemmKernel::best);
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

TEST_F(GemmGpu, EmptyProducts) {
  for (const GemmCase& size : {GemmCase{.m = 40, .n = 70, .k = 0}, GemmCase{.m = 0, .n = 8, .k = 8},
                               GemmCase{.m = 8, .n = 0, .k = 8}}) {
    RandomGemm call(1, size);
    run(call, GemmKernel::best);
    EXPECT_EQ(call.wrong(), "");
  }
}

TEST_F(GemmGpu, GivesTheSameBitsEveryTime) {
  const GemmCase size{.m = 1000, .n = 1000, .k = 264, .aligned = true};
  const auto expect_same = [&](GemmKernel kernel) {
    RandomGemm first(3, size);
    run(first, kernel);
    for (int round = 0; round < 5; ++round) {
      RandomGemm again(3, size);
      run(again, kernel);
      ASSERT_EQ(again.out().bytes(), first.out().bytes()) << name(kernel) << ", round " << round;
    }
  };
  expect_same(GemmKernel::best);
  expect_same(GemmKernel::portable);
  if (!has_sm90()) return;
  for (const detail::GemmShape& shape : detail::gemm_shapes) {
    if (shape.split > 1) expect_same(shape.kernel);
  }
}

TEST_F(GemmGpu, MayBeCaptured) {
  const Stream stream(gpu);
  for (const bool aligned : {true, false}) {
    const GemmCase size{.m = 130, .n = 136, .k = 72, .aligned = aligned};
    RandomGemm loads(1, size);  // the kernel, which a capture does not allow
    run(loads, GemmKernel::best);

    RandomGemm call(1, size);
    Copies copies(gpu, stream);
    const GemmOptions options = call.placed([&](Strided& array) { return copies.of(array); });
    stream.synchronize();
    Recording recording(cuda_stream(stream));
    gemm(options, stream);
    EXPECT_TRUE(recording.active());
    recording.replay(cuda_stream(stream));
    copies.fetch();
    EXPECT_EQ(call.wrong(), "");
  }
}

TEST_F(GemmGpu, RefusesSm90KernelsForOtherMatrices) {
  if (!has_sm90()) GTEST_SKIP() << "needs compute capability 9.0";
  RandomGemm call(1, {.m = 4, .n = 4, .k = 8});
  try {
    run(call, GemmKernel::sm90_64x64);
    FAIL() << "accepted rows of 8 bytes";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "kernel");
  }
}

}  // namespace
}  // namespace ps::test
