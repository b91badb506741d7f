// Which kernel gemm() runs: the one it names, else the one measured here, else an estimate.
#include "ops/gemm/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>

#include "ops/gemm/tunable.h"
#include "ops/gemm_times.h"
#include "ops/tunable.h"
#include "support/environment.h"
#include "support/fake_machine.h"
#include "support/temporary_directory.h"

namespace ps::detail {
namespace {

using test::FakeMachine;

constexpr std::size_t h200 = 132;  // multiprocessors

GemmKernel chosen(std::size_t m, std::size_t n, std::size_t k, std::size_t sms = h200) {
  return estimated_gemm({m, n, k}, sms);
}

GemmSize random_size(std::mt19937& random) {
  const auto extent = [&] { return std::size_t{1} + random() % (std::size_t{1} << random() % 16); };
  return {extent(), extent(), extent()};
}

TEST(GemmShapes, AreDistinctAndFound) {
  std::set<std::string_view> names;
  for (const GemmShape& shape : gemm_shapes) {
    EXPECT_TRUE(names.insert(shape.name).second) << shape.name;
    EXPECT_EQ(find_gemm_shape(shape.kernel), &shape);
    EXPECT_NE(std::string(shape.name)
                  .find(std::to_string(shape.tile_m) + "x" + std::to_string(shape.tile_n)),
              std::string::npos)
        << shape.name;
  }
  for (const GemmKernel kernel : gemm_kernels()) names.insert(name(kernel));
  EXPECT_EQ(names.size(), gemm_kernels().size());
  EXPECT_EQ(names.size(), 2 + gemm_shapes.size());
  EXPECT_EQ(find_gemm_shape(GemmKernel::best), nullptr);
  EXPECT_EQ(find_gemm_shape(GemmKernel::portable), nullptr);
}

// Where all kernels were measured on an H200, the chosen one is never much slower than the fastest.
TEST(GemmEstimate, ChoosesFastKernelsAtMeasuredSizes) {
  double logarithms = 0;
  for (const auto& [size, times, cublas] : test::gemm_times) {
    const GemmKernel kernel = chosen(size.m, size.n, size.k);
    const auto place = std::ranges::find(test::timed_gemm_kernels, kernel);
    ASSERT_NE(place, test::timed_gemm_kernels.end()) << name(kernel) << " has not been measured";
    const double time =
        times.at(static_cast<std::size_t>(place - test::timed_gemm_kernels.begin()));
    const double slower = time / *std::ranges::min_element(times);
    EXPECT_LE(slower, 1.08) << name(kernel) << " at " << size.m << " x " << size.n << " x "
                            << size.k;
    logarithms += std::log(slower);
  }
  EXPECT_LE(std::exp(logarithms / std::size(test::gemm_times)), 1.008);
}

// The estimates themselves, of the kernels that are not much slower than the fastest.
TEST(GemmEstimate, IsNearTheMeasuredTimes) {
  double squares = 0;
  int count = 0;
  for (const auto& [size, times, cublas] : test::gemm_times) {
    const double fastest = *std::ranges::min_element(times);
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (times[i] > 1.5 * fastest) continue;
      const GemmShape& shape = *find_gemm_shape(test::timed_gemm_kernels[i]);
      const double estimate = gemm_time(shape, {size.m, size.n, size.k}, h200) / 1000;
      EXPECT_NEAR(estimate / times[i], 1, 0.25)
          << shape.name << " at " << size.m << " x " << size.n << " x " << size.k;
      squares += std::pow(std::log(estimate / times[i]), 2);
      ++count;
    }
  }
  EXPECT_LE(std::sqrt(squares / count), 0.08);
}

TEST(GemmEstimate, ChoosesOnlyMeasuredKernels) {
  std::mt19937 random(5);
  for (int round = 0; round < 20'000; ++round) {
    const GemmSize size = random_size(random);
    EXPECT_TRUE(find_gemm_shape(estimated_gemm(size, 1 + random() % 200))->measured);
  }
  for (const GemmShape& shape : gemm_shapes) {
    EXPECT_EQ(std::ranges::count(test::timed_gemm_kernels, shape.kernel), shape.measured ? 1 : 0)
        << shape.name;
  }
}

// The kernels that the following tests expect are within 2 % of the fastest ones in measurements on
// an H200.
const GemmShape& shape_of(std::size_t m, std::size_t n, std::size_t k, std::size_t sms = h200) {
  return *find_gemm_shape(chosen(m, n, k, sms));
}

TEST(GemmEstimate, LargeAlignedProductsTakeLargeTilesInPairs) {
  for (const std::size_t size : {2048U, 4096U, 8192U, 16384U}) {
    EXPECT_EQ(chosen(size, size, size), GemmKernel::sm90_128x256_cluster2) << size;
  }
  EXPECT_EQ(chosen(4096, 14336, 4096), GemmKernel::sm90_128x256_cluster2);
  EXPECT_EQ(chosen(16384, 2048, 768), GemmKernel::sm90_128x256_cluster2);
  EXPECT_EQ(chosen(131072, 512, 512), GemmKernel::sm90_128x256_cluster2);
}

TEST(GemmEstimate, FewTilesAreSmaller) {
  EXPECT_EQ(chosen(584, 208, 232), GemmKernel::sm90_64x64);
  EXPECT_EQ(chosen(1, 1, 1), GemmKernel::sm90_64x64);
  EXPECT_EQ(chosen(1000, 1000, 1000), GemmKernel::sm90_64x128_cluster2);
  EXPECT_EQ(chosen(1024, 1024, 4096), GemmKernel::sm90_64x128_cluster2);
  EXPECT_EQ(chosen(128, 8192, 8192), GemmKernel::sm90_64x128_cluster2);
  EXPECT_EQ(chosen(64, 8192, 8192), GemmKernel::sm90_64x128);
  EXPECT_EQ(chosen(64, 7168, 2048), GemmKernel::sm90_64x128);
  EXPECT_EQ(chosen(384, 4096, 4096), GemmKernel::sm90_128x128_pingpong);
  const auto area = [](const GemmShape& shape) { return shape.tile_m * shape.tile_n; };
  // The more multiprocessors there are to fill, the smaller.
  for (const std::size_t m : {256U, 512U, 1024U, 2048U}) {
    EXPECT_LE(area(shape_of(m, m, 1024, 132)), area(shape_of(m, m, 1024, 16))) << m;
  }
}

// Even the smallest tiles are fewer than multiprocessors.
TEST(GemmEstimate, VeryFewTilesAreSplit) {
  EXPECT_EQ(chosen(1, 4096, 4096), GemmKernel::sm90_64x64_split2);
  EXPECT_EQ(chosen(16, 4096, 14336), GemmKernel::sm90_64x64_split2);
  EXPECT_EQ(chosen(64, 4096, 4096), GemmKernel::sm90_64x64_split2);
  EXPECT_EQ(chosen(64, 4096, 14336), GemmKernel::sm90_64x64_split2);
  EXPECT_EQ(chosen(128, 1536, 2048), GemmKernel::sm90_64x64_split2);
  EXPECT_EQ(chosen(128, 4096, 4096), GemmKernel::sm90_64x128_split2);
  EXPECT_EQ(chosen(256, 2048, 2048), GemmKernel::sm90_64x128_split2);
  // Enough tiles, or too short for the exchange of sums.
  EXPECT_EQ(chosen(33, 6144, 4096), GemmKernel::sm90_64x64);
  EXPECT_EQ(shape_of(4096, 4096, 4096).split, 1U);
  EXPECT_EQ(chosen(1, 4104, 520), GemmKernel::sm90_64x64);
  EXPECT_EQ(chosen(64, 128, 64), GemmKernel::sm90_64x64);
}

// No kernel is estimated to read and write faster than memory does.
TEST(GemmEstimate, MemoryIsALowerLimit) {
  const GemmSize size{16, 28672, 8192};
  const double bytes = 2.0 * (16 * 8192 + 28672 * 8192 + 16 * 28672);
  for (const GemmShape& shape : gemm_shapes) {
    EXPECT_GT(gemm_time(shape, size, h200), bytes / gemm_memory) << shape.name;
  }
}

// Transfers from the L2 cache take time although memory is the limit: small tiles load a more
// often.
TEST(GemmEstimate, TransfersAddToMemory) {
  const GemmSize few{8, 8192, 8192}, more{64, 8192, 8192};
  const auto slowdown = [&](GemmKernel kernel) {
    const GemmShape& shape = *find_gemm_shape(kernel);
    return gemm_time(shape, more, h200) / gemm_time(shape, few, h200);
  };
  EXPECT_GT(slowdown(GemmKernel::sm90_64x64), 1.1);  // measured: 1.24 and 1.11
  EXPECT_GT(slowdown(GemmKernel::sm90_64x64), slowdown(GemmKernel::sm90_64x128));
}

TEST(GemmEstimate, ShortProductsHideTheirEpilogue) {
  EXPECT_TRUE(shape_of(4456, 7312, 136).ping_pong);
  EXPECT_TRUE(shape_of(2640, 9784, 200).ping_pong);
  EXPECT_TRUE(shape_of(4096, 4096, 256).ping_pong);
  EXPECT_FALSE(shape_of(8192, 8192, 8192).ping_pong);
}

// An odd number of tile rows: a block of the last clusters would repeat the tile of the other.
TEST(GemmEstimate, ClustersThatDoNotFitAreLeftOut) {
  EXPECT_EQ(chosen(384, 10600, 3088), GemmKernel::sm90_128x256);
  EXPECT_EQ(shape_of(64, 7168, 2048).cluster, 1U);
}

// Tiles that overlap others cost no more than those that do not.
TEST(GemmEstimate, EdgesAreLoadedLikeTheRest) {
  EXPECT_EQ(chosen(8392, 264, 312), GemmKernel::sm90_128x192_cluster2);
  EXPECT_EQ(chosen(5432, 600, 1416), GemmKernel::sm90_128x256_cluster2);
  const GemmSize whole{8448, 512, 320};
  GemmSize edges{8392, 264, 320};
  edges.out_alignment = whole.out_alignment;
  for (const GemmShape& shape : gemm_shapes) {
    EXPECT_LE(gemm_time(shape, edges, h200), gemm_time(shape, whole, h200)) << shape.name;
  }
}

TEST(GemmEstimate, MisalignedRowsAreLoadedByClusters) {
  EXPECT_GT(shape_of(2304, 4280, 3488).cluster, 1U);
  EXPECT_GT(shape_of(12144, 4232, 5928).cluster, 1U);
  EXPECT_GT(shape_of(14952, 8440, 424).cluster, 1U);
  EXPECT_GT(shape_of(13768, 9424, 440).cluster, 1U);
  const GemmSize aligned{4096, 4096, 4096};
  GemmSize misaligned = aligned;
  misaligned.a_alignment = misaligned.b_alignment = 16;
  const auto slowdown = [&](GemmKernel kernel) {
    const GemmShape& shape = *find_gemm_shape(kernel);
    return gemm_time(shape, misaligned, h200) / gemm_time(shape, aligned, h200);
  };
  EXPECT_GT(slowdown(GemmKernel::sm90_128x256_cluster2), 1.2);
  EXPECT_GT(slowdown(GemmKernel::sm90_128x256), slowdown(GemmKernel::sm90_128x256_cluster2));
}

TEST(GemmEstimate, LowerAlignmentNeverTakesLess) {
  for (auto alignment :
       {&GemmSize::a_alignment, &GemmSize::b_alignment, &GemmSize::out_alignment}) {
    GemmSize size{8192, 8192, 512};
    EXPECT_EQ(size.*alignment, 128U);
    for (const GemmShape& shape : gemm_shapes) {
      double before = 0;
      for (const std::size_t bytes : {128U, 64U, 32U, 16U}) {
        size.*alignment = bytes;
        const double time = gemm_time(shape, size, h200);
        EXPECT_GT(time, before) << shape.name << " at " << bytes;
        before = time;
      }
    }
  }
}

TEST(GemmEstimate, MoreWorkNeverTakesLess) {
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    const GemmSize size = random_size(random);
    const std::size_t sms = 1 + random() % 200;
    for (const GemmShape& shape : gemm_shapes) {
      const double time = gemm_time(shape, size, sms);
      ASSERT_GT(time, 0);
      ASSERT_LT(time, gemm_time(shape, {size.m, size.n, size.k + 64}, sms));
    }
  }
}

TEST(GemmEstimate, IsTheShortest) {
  std::mt19937 random(2);
  for (int round = 0; round < 20'000; ++round) {
    const GemmSize size = random_size(random);
    const double time = gemm_time(*find_gemm_shape(estimated_gemm(size, h200)), size, h200);
    for (const GemmShape& shape : gemm_shapes) {
      if (!shape.measured) continue;
      ASSERT_LE(time, gemm_time(shape, size, h200))
          << shape.name << " at " << size.m << " x " << size.n << " x " << size.k;
    }
  }
}

class GemmChoice : public testing::Test {
 protected:
  GemmChoice() { reload_choices(); }
  ~GemmChoice() override { reload_choices(); }

  void keep(const std::string& problem, const std::string& kernel, const Device& gpu) const {
    Choices choices{.key = machine_key(gpu), .operators = {}};
    choices.operators["gemm"][problem] = {kernel, "2026-11-15T08:30:00Z"};
    save_choices(choices_path(), choices);
    reload_choices();
  }

  // A call on aligned memory.
  static GemmWork work(std::int64_t m, std::int64_t n, std::int64_t k) {
    alignas(128) static std::byte memory[128];
    return {.m = m,
            .n = n,
            .k = k,
            .a = memory,
            .b = memory,
            .out = memory,
            .a_row = k,
            .b_row = k,
            .out_row = n};
  }
  static GemmKernel kernel(const GemmWork& work, const Device& gpu,
                           GemmKernel asked = GemmKernel::best) {
    return gemm_kernel(work, asked, gpu);
  }

  static std::string problem_of(const GemmWork& work, const Device& gpu) {
    const std::size_t sms = static_cast<std::size_t>(gpu.capabilities().multiprocessors);
    return gemm_tunable().problems.at(gemm_problem(gemm_size(work), sms));
  }

  test::TemporaryDirectory folder_;
  test::Variable cache_{"PENSTOCK_CACHE", folder_.path()};
};

TEST_F(GemmChoice, TheEstimateWithoutAFile) {
  const FakeMachine machine;
  const auto sms = static_cast<std::size_t>(machine.gpu().capabilities().multiprocessors);
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const GemmSize size = random_size(random);
    const GemmWork call =
        work(static_cast<std::int64_t>(size.m), static_cast<std::int64_t>(size.n) * 8,
             static_cast<std::int64_t>(size.k) * 8);
    EXPECT_EQ(kernel(call, machine.gpu()), estimated_gemm({size.m, 8 * size.n, 8 * size.k}, sms));
  }
}

TEST_F(GemmChoice, AlignmentIsThatOfAddressesAndStrides) {
  GemmWork call = work(256, 512, 512);
  EXPECT_EQ(gemm_size(call).a_alignment, 128U);
  EXPECT_EQ(gemm_size(call).b_alignment, 128U);
  EXPECT_EQ(gemm_size(call).out_alignment, 128U);
  call.a_row = 512 + 8;
  call.b = static_cast<const std::byte*>(call.b) + 32;
  call.out_row = 512 + 32;
  EXPECT_EQ(gemm_size(call).a_alignment, 16U);
  EXPECT_EQ(gemm_size(call).b_alignment, 32U);
  EXPECT_EQ(gemm_size(call).out_alignment, 64U);
}

TEST_F(GemmChoice, MeasuredBeforeEstimatedAndNamedBeforeMeasured) {
  const FakeMachine machine;
  const GemmWork call = work(8192, 8192, 4096);
  keep(problem_of(call, machine.gpu()), "sm90_128x192_cluster2", machine.gpu());
  EXPECT_EQ(kernel(call, machine.gpu()), GemmKernel::sm90_128x192_cluster2);
  EXPECT_EQ(kernel(call, machine.gpu(), GemmKernel::sm90_64x64), GemmKernel::sm90_64x64);
  EXPECT_EQ(kernel(call, machine.gpu(), GemmKernel::portable), GemmKernel::portable);
}

// Kernels that the estimate leaves out may be measured by `penstock tune`.
TEST_F(GemmChoice, TuningMayChooseEveryKernel) {
  const FakeMachine machine;
  const GemmWork call = work(512, 7168, 2048);
  EXPECT_EQ(kernel(call, machine.gpu()), GemmKernel::sm90_128x256_cluster2);
  keep(problem_of(call, machine.gpu()), "sm90_128x224_cluster2", machine.gpu());
  EXPECT_EQ(kernel(call, machine.gpu()), GemmKernel::sm90_128x224_cluster2);
}

TEST_F(GemmChoice, AMeasuredKernelThatDoesNotSuitTheSizeDoesNotCount) {
  const FakeMachine machine;
  const GemmWork call = work(8192, 8192, 4096);
  keep(problem_of(call, machine.gpu()), "sm90_64x64", machine.gpu());
  EXPECT_EQ(kernel(call, machine.gpu()), GemmKernel::sm90_128x256_cluster2);
}

TEST_F(GemmChoice, PortableWhereTensorMapsCannotBe) {
  const FakeMachine machine;
  const auto is_portable = [&](const GemmWork& call) {
    return kernel(call, machine.gpu()) == GemmKernel::portable;
  };
  EXPECT_FALSE(is_portable(work(5, 64, 64)));
  EXPECT_TRUE(is_portable(work(5, 63, 64)));
  EXPECT_TRUE(is_portable(work(5, 64, 63)));
  EXPECT_TRUE(is_portable(work(5, 64, 0)));
  for (auto stride : {&GemmWork::a_row, &GemmWork::b_row, &GemmWork::out_row}) {
    for (const std::int64_t value : {-64, 0, 56, 65, 68}) {
      GemmWork call = work(5, 64, 64);
      call.*stride = value;
      EXPECT_TRUE(is_portable(call)) << value;
    }
    GemmWork call = work(5, 64, 64);
    call.*stride = 72;
    EXPECT_FALSE(is_portable(call));
  }
  GemmWork call = work(5, 64, 64);
  call.a = static_cast<const std::byte*>(call.a) + 8;
  EXPECT_TRUE(is_portable(call));
}

TEST_F(GemmChoice, PortableOnOtherGpus) {
  for (const int major : {8, 10, 12}) {
    const FakeMachine machine(
        {.adjust = [=](int, cuda::Properties& gpu) { gpu.major = major, gpu.minor = 0; }});
    EXPECT_EQ(kernel(work(512, 512, 512), machine.gpu()), GemmKernel::portable);
    EXPECT_EQ(gemm_tunable().candidates(0, machine.gpu()).size(), 1U);
    reload_choices();
  }
  const FakeMachine hopper;
  EXPECT_EQ(gemm_tunable().candidates(0, hopper.gpu()).size(), 1 + gemm_shapes.size());
}

TEST_F(GemmChoice, EverySizeHasAProblem) {
  std::mt19937 random(4);
  std::set<std::size_t> seen;
  for (int round = 0; round < 5000; ++round) {
    const std::size_t problem = gemm_problem(random_size(random), h200);
    ASSERT_LT(problem, gemm_tunable().problems.size());
    seen.insert(problem);
  }
  EXPECT_EQ(seen.size(), gemm_tunable().problems.size());
  EXPECT_EQ(gemm_tunable().problems[gemm_problem({1024, 4096, 512}, h200)],
            "up to one wave, K up to 1024");
  EXPECT_EQ(gemm_tunable().problems[gemm_problem({16384, 16384, 1025}, h200)],
            "over four waves, K over 1024");
  EXPECT_EQ(gemm_tunable().problems[gemm_problem({128, 65536, 1024}, h200)],
            "up to 128 rows, K up to 1024");
  EXPECT_EQ(gemm_tunable().problems[gemm_problem({129, 65536, 1025}, h200)],
            "up to four waves, K over 1024");
}

}  // namespace
}  // namespace ps::detail
