// Every rung of the GEMM ladder multiplies what it is given, whatever the size.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gemm/support/matrices.h"
#include "gemm/support/rungs.h"
#include "gpu/gpu_test.h"
#include "gpu/kernel_roles.h"
#include "penstock/host/cuda.h"
#include "support/ladder.h"
#include "support/temporary_directory.h"

namespace {

class GemmLadder : public ps::test::GpuTest {
 protected:
  // Runs every rung on the size, or those with or without Hopper's instructions, twice, and checks
  // the product against sums in double precision.
  void expect_right(const gemm::Size& size, std::size_t offset = 0,
                    std::optional<bool> hopper = std::nullopt) {
    const ps::Stream stream(gpu);
    const gemm::Matrices matrices(stream, size, 1, offset);
    for (const gemm::Product& product : gemm::products()) {
      if (product.hopper && gpu.capabilities().compute_major != 9) continue;
      if (product.hopper != hopper.value_or(product.hopper)) continue;
      SCOPED_TRACE(::testing::Message() << product.name << " at " << size.m << " x " << size.n
                                        << " x " << size.k << ", offset " << offset);
      for (int run = 0; run < 2; ++run) {
        matrices.poison(0);
        product.run(matrices.problem(0), ps::cuda_stream(stream));
        EXPECT_NO_THROW(matrices.check(0));
      }
    }
  }
};

TEST_F(GemmLadder, HasTenRungs) { EXPECT_EQ(gemm::products().size(), 10u); }

TEST_F(GemmLadder, Tiles) {
  expect_right({128, 256, 64});
  expect_right({256, 512, 128});
  expect_right({384, 256, 512});
}

TEST_F(GemmLadder, OneOfEach) {
  expect_right({1, 1, 1});
  expect_right({1, 8, 8});
  expect_right({8, 1, 16});
  expect_right({1, 4096, 64});
  expect_right({4096, 1, 64});
}

TEST_F(GemmLadder, OffByOne) {
  expect_right({127, 255, 63});
  expect_right({129, 257, 65});
  expect_right({129, 264, 72});
  expect_right({65, 248, 56});
}

TEST_F(GemmLadder, NothingToAddIsZero) { expect_right({70, 90, 0}); }

// More tiles than multiprocessors, and a cluster with a block below the last row.
TEST_F(GemmLadder, ManyTiles) {
  expect_right({128 * 33, 256 * 5, 192});
  expect_right({128 * 3, 256 * 67, 64});
}

TEST_F(GemmLadder, TracedKernelsAreRightAndShowEveryRole) {
  const ps::Stream stream(gpu);
  const gemm::Matrices matrices(stream, {1024, 1024, 1024}, 1);
  for (const gemm::Product& product : gemm::products()) {
    if (product.hopper && gpu.capabilities().compute_major != 9) continue;
    SCOPED_TRACE(product.name);
    const gemm::Traced traced = product.traced();
    const auto launch = [&](const ps::kit::TraceBuffer<true>& buffer) {
      matrices.poison(0);
      traced.run(matrices.problem(0), ps::cuda_stream(stream), buffer);
    };
    ps::test::expect_every_role(
        {.name = traced.name, .roles = traced.roles, .room = traced.room, .launch = launch},
        stream);
    EXPECT_NO_THROW(matrices.check(0));
  }
}

TEST_F(GemmLadder, IsClimbedAndShowsItsRoles) {
  const ps::test::TemporaryDirectory folder;
  ladder::Context context({.device = gpu, .quick = true, .trace = folder.path().string()});
  std::vector<ladder::Rung> rungs = ladder::rungs();
  std::erase_if(rungs, [&](const ladder::Rung& rung) {
    return rung.ladder != "gemm" ||
           (rung.file.find("_sm90") != rung.file.npos && gpu.capabilities().compute_major != 9);
  });
  for (const auto& [rung, rows] : climb(context, rungs, [](const auto&, double) {})) {
    EXPECT_FALSE(rows.empty()) << rung.name;
  }
  for (const gemm::Product& product : gemm::products()) {
    if (product.hopper && gpu.capabilities().compute_major != 9) continue;
    const std::string name = "gemm_" + product.traced().name;
    EXPECT_TRUE(std::filesystem::exists(folder.path() / (name + ".html"))) << name;
    EXPECT_TRUE(std::filesystem::exists(folder.path() / (name + ".json"))) << name;
  }
}

// For compute-sanitizer (scripts/gpu_check.sh), whose racecheck cannot follow Hopper's
// instructions. The first size has several tiles and k-steps in every rung, the second has partial
// ones.
TEST_F(GemmLadder, SmallSizesWithoutHopper) {
  expect_right({256, 512, 192}, 0, false);
  expect_right({129, 264, 72}, 0, false);
}

TEST_F(GemmLadder, SmallSizesOnHopper) {
  expect_right({256, 512, 192}, 0, true);
  expect_right({129, 264, 72}, 0, true);
}

TEST_F(GemmLadder, LongSums) { expect_right({200, 136, 8192}); }

TEST_F(GemmLadder, MisalignedMatrices) {
  expect_right({130, 260, 72}, 1);
  expect_right({128, 256, 64}, 4);
}

TEST_F(GemmLadder, RandomSizes) {
  const unsigned seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE(::testing::Message() << "--gtest_random_seed=" << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 12; ++i) {
    const auto extent = [&](unsigned most) { return 1 + static_cast<unsigned>(random() % most); };
    const unsigned step = i % 2 == 0 ? 8 : 1;  // every other one is made for tensor maps
    expect_right({extent(600), extent(100) * step, extent(60) * step});
  }
}

}  // namespace
