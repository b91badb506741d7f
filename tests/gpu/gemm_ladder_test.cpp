// Every rung of the GEMM ladder multiplies what it is given, whatever the size.
#include <random>

#include "gemm/support/matrices.h"
#include "gemm/support/rungs.h"
#include "gpu/gpu_test.h"
#include "penstock/host/cuda.h"

namespace {

class GemmLadder : public ps::test::GpuTest {
 protected:
  // Runs every rung on the size, twice, and checks the product against sums in double precision.
  void expect_right(const gemm::Size& size, std::size_t offset = 0) {
    const ps::Stream stream(gpu);
    const gemm::Matrices matrices(stream, size, 1, offset);
    for (const gemm::Product& product : gemm::products()) {
      if (product.hopper && gpu.capabilities().compute_major != 9) continue;
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
