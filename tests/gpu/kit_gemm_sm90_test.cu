// The matrix-product engine in shapes that no rung has: one cluster takes every tile, so that the
// ring and the pieces of the epilogue go round many times.
#include "gemm/support/matrices.h"
#include "gemm/support/views.h"
#include "gpu/gpu_test.h"
#include "penstock/host/cuda.h"
#include "penstock/kit/gemm/launch.cuh"

namespace {

namespace kit = ps::kit;

class KitGemm : public ps::test::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && gpu.capabilities().compute_major != 9) {
      GTEST_SKIP() << "wgmma needs compute capability 9.0";
    }
  }

  template <class Config>
  void expect_right(const gemm::Size& size) {
    using Product = kit::Gemm<Config>;
    const ps::Stream stream(gpu);
    const gemm::Matrices matrices(stream, size, 1);
    const gemm::Problem& p = matrices.problem(0);
    const kit::GridOrder<Config> order(p.m, p.n, 4 * Config::cluster);
    for (const unsigned blocks : {Config::cluster, kit::gemm_blocks<Product>(order.grid())}) {
      SCOPED_TRACE(testing::Message() << blocks << " blocks of " << Config::tile_m << " x "
                                      << Config::tile_n << ", clusters of " << Config::cluster);
      matrices.poison(0);
      kit::launch_gemm<Product>(gemm::view_a(p), gemm::view_b(p),
                                kit::gemm_map(gemm::view_c(p), kit::GemmStore<Config>::box_rows),
                                order, blocks, ps::cuda_stream(stream));
      EXPECT_NO_THROW(matrices.check(0));
    }
  }
};

template <unsigned tile_m, unsigned tile_n, unsigned depth, unsigned cluster>
using Config = kit::GemmConfig<__nv_bfloat16, tile_m, tile_n, depth, cluster>;

constexpr gemm::Size size = {600, 776, 328};

TEST_F(KitGemm, OneConsumerNarrow) { expect_right<Config<64, 64, 3, 1>>(size); }
TEST_F(KitGemm, OneConsumerWide) { expect_right<Config<64, 256, 2, 2>>(size); }
TEST_F(KitGemm, OddPieces) { expect_right<Config<128, 192, 4, 2>>(size); }
TEST_F(KitGemm, FourBlocks) { expect_right<Config<128, 128, 4, 4>>(size); }
TEST_F(KitGemm, ThreeConsumers) { expect_right<Config<192, 128, 3, 1>>(size); }
TEST_F(KitGemm, TwoSlots) { expect_right<Config<128, 256, 2, 2>>(size); }

}  // namespace
