// The matrix-product engine in shapes and with a loader that no rung has: one cluster takes every
// tile, so that the ring and the pieces of the epilogue go round many times.
#include <set>

#include "gemm/support/matrices.h"
#include "gemm/support/rungs.h"
#include "gemm/support/views.h"
#include "gpu/gpu_test.h"
#include "penstock/host/cuda.h"
#include "penstock/kit/gemm/launch.cuh"
#include "penstock/kit/gemm/row_loader.cuh"
#include "support/kernel_page.h"

// Parts that lack something are refused where a product names them. They are only declared.
namespace incomplete {

namespace kit = ps::kit;
using Usual = kit::GemmConfig<__nv_bfloat16, 128, 128, 4, 1, 2>;
using Wide = kit::GemmConfig<__nv_bfloat16, 128, 256, 2, 1, 2>;
using Tallest = kit::GemmConfig<__nv_bfloat16, 192, 128, 3, 1, 2>;

struct OrderForWholeWarps : kit::GridOrder<Usual> {
  template <bool warps>
  struct Tiles {
    __device__ Tiles(const OrderForWholeWarps&, Shared&, bool);
    __device__ bool take(kit::GemmTile&)
      requires warps;
    __device__ void look_ahead(unsigned, unsigned);
  };
};
static_assert(kit::GemmOrder<kit::GridOrder<Usual>> && !kit::GemmOrder<OrderForWholeWarps>);

struct LoaderWithoutSlots : kit::TensorLoader<Usual> {
  __device__ explicit LoaderWithoutSlots(const Arguments&);
};
static_assert(kit::GemmLoading<kit::TensorLoader<Usual>, Usual>);
static_assert(kit::GemmLoading<kit::RowLoader<Usual>, Usual>);
static_assert(!kit::GemmLoading<LoaderWithoutSlots, Usual>);

struct ScheduleWithoutNumber : kit::Cooperative<Usual> {
  __device__ explicit ScheduleWithoutNumber(kit::GemmSlots<Usual>&);
};
static_assert(kit::GemmSchedule<kit::Cooperative<Usual>, Usual, kit::GemmStore<Usual>>);
static_assert(!kit::GemmSchedule<ScheduleWithoutNumber, Usual, kit::GemmStore<Usual>>);

// Tiles of 128 columns: 64 sums per thread, with Tall also 32.
struct StoreOf64Sums : kit::GemmStore<Usual> {
  using GemmStore::GemmStore;
  __device__ void store(const float (&)[64], const kit::GemmTile&, unsigned, unsigned);
};
static_assert(kit::GemmEpilogue<StoreOf64Sums>);
static_assert(kit::GemmSchedule<kit::Cooperative<Usual>, Usual, StoreOf64Sums>);
static_assert(!kit::GemmSchedule<kit::Cooperative<Wide>, Wide, StoreOf64Sums>);
static_assert(kit::GemmSchedule<kit::Tall<Tallest>, Tallest, kit::GemmStore<Tallest>>);
static_assert(!kit::GemmSchedule<kit::Tall<Tallest>, Tallest, StoreOf64Sums>);

}  // namespace incomplete

namespace {

namespace kit = ps::kit;

template <class Config, template <class> class Schedule>
using Scheduled = kit::Gemm<Config, kit::GemmStore<Config>, kit::TensorLoader<Config>,
                            kit::GridOrder<Config>, Schedule<Config>>;

class KitGemm : public ps::test::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && gpu.capabilities().compute_major != 9) {
      GTEST_SKIP() << "wgmma needs compute capability 9.0";
    }
  }

  template <class Config, template <class> class Schedule = kit::Cooperative>
  void expect_right(const gemm::Size& size) {
    expect_right<Scheduled<Config, Schedule>>(size, [](const gemm::Problem& p) {
      return kit::gemm_operands<Config>(gemm::view_a(p), gemm::view_b(p));
    });
  }

  template <class Config, template <class> class Schedule = kit::Cooperative>
  void expect_right_by_rows(const gemm::Size& size) {
    using Loader = kit::RowLoader<Config>;
    using Product =
        kit::Gemm<Config, kit::GemmStore<Config>, Loader, kit::GridOrder<Config>, Schedule<Config>>;
    expect_right<Product>(size, [](const gemm::Problem& p) {
      const std::uint64_t pitch = p.k * sizeof(__nv_bfloat16);
      return typename Loader::Arguments{p.a, p.b, pitch, pitch, p.n, p.k / 8};
    });
  }

  template <class Product, class Operands>
  void expect_right(const gemm::Size& size, const Operands& operands) {
    using Config = typename Product::Config;
    const ps::Stream stream(gpu);
    const gemm::Matrices matrices(stream, size, 1);
    const gemm::Problem& p = matrices.problem(0);
    const kit::GridOrder<Config> order(p.m, p.n, 4 * Config::cluster);
    for (const unsigned blocks :
         {Config::cluster_blocks, kit::gemm_blocks<Product>(order.grid())}) {
      SCOPED_TRACE(testing::Message()
                   << blocks << " blocks of " << Config::tile_m << " x " << Config::tile_n
                   << ", clusters of " << Config::cluster_blocks);
      for (const bool overlaps_previous : {false, true}) {
        matrices.poison(0);
        kit::launch_gemm<Product>(operands(p), kit::gemm_steps<Config>(p.k),
                                  kit::gemm_map(gemm::view_c(p), kit::GemmStore<Config>::box_rows),
                                  order, blocks, ps::cuda_stream(stream), {}, overlaps_previous);
        EXPECT_NO_THROW(matrices.check(0));
      }
    }
  }
};

template <unsigned tile_m, unsigned tile_n, unsigned depth, unsigned cluster,
          unsigned consumers = tile_m / 64, unsigned split = 1>
using Config = kit::GemmConfig<__nv_bfloat16, tile_m, tile_n, depth, cluster, consumers, split>;

constexpr gemm::Size size = {600, 776, 328};

TEST_F(KitGemm, OneConsumerNarrow) { expect_right<Config<64, 64, 3, 1>>(size); }
TEST_F(KitGemm, OneConsumerWide) { expect_right<Config<64, 256, 2, 2>>(size); }
TEST_F(KitGemm, OddPieces) { expect_right<Config<128, 192, 4, 2>>(size); }
TEST_F(KitGemm, OverlappingPieces) {
  for (const gemm::Size& each : {size, gemm::Size{130, 232, 64}, gemm::Size{1, 8, 8}}) {
    expect_right<Config<128, 224, 4, 2>>(each);
    expect_right<Config<64, 80, 4, 1>>(each);
  }
}
TEST_F(KitGemm, FourBlocks) { expect_right<Config<128, 128, 4, 4>>(size); }
TEST_F(KitGemm, ThreeConsumers) { expect_right<Config<192, 128, 3, 1>>(size); }
TEST_F(KitGemm, TwoSlots) { expect_right<Config<128, 256, 2, 2>>(size); }

// A block takes from no tile to all of them: an even number, an odd number, and one alone. Tiles
// have more steps than the ring has slots, as many, and fewer.
constexpr gemm::Size turns[] = {size, {600, 776, 256}, {1000, 136, 64}, {64, 64, 512}, {1, 8, 8}};

TEST_F(KitGemm, PingPong) {
  for (const gemm::Size& each : turns) expect_right<Config<128, 128, 4, 1>, kit::PingPong>(each);
}
TEST_F(KitGemm, PingPongOfNarrowTiles) {
  for (const gemm::Size& each : turns) expect_right<Config<64, 64, 3, 1, 2>, kit::PingPong>(each);
}
TEST_F(KitGemm, PingPongOfPairs) {
  for (const gemm::Size& each : turns) expect_right<Config<128, 128, 6, 2>, kit::PingPong>(each);
}
TEST_F(KitGemm, PingPongOfFourBlocks) {
  for (const gemm::Size& each : turns) expect_right<Config<64, 256, 4, 4, 2>, kit::PingPong>(each);
}
TEST_F(KitGemm, PingPongWithOneSlot) {
  for (const gemm::Size& each : turns) expect_right<Config<64, 128, 1, 1, 2>, kit::PingPong>(each);
}

// Whole tiles, and matrices that are smaller than a tile in either direction.
TEST_F(KitGemm, RowsByCpAsync) {
  for (const gemm::Size& each : turns) {
    expect_right_by_rows<Config<128, 256, 4, 1>>(each);
    expect_right_by_rows<Config<64, 80, 2, 1>>(each);
    expect_right_by_rows<Config<64, 64, 3, 1, 2>, kit::PingPong>(each);
  }
}

// Blocks have whole steps, broken ones, and none before the end of K.
TEST_F(KitGemm, SplitInTwo) {
  for (const gemm::Size& each : turns) expect_right<Config<128, 128, 3, 1, 2, 2>, kit::Split>(each);
}
TEST_F(KitGemm, SplitInFour) {
  for (const gemm::Size& each : turns) expect_right<Config<64, 128, 4, 1, 1, 4>, kit::Split>(each);
}
TEST_F(KitGemm, SplitWithOneSlot) {
  for (const gemm::Size& each : turns) expect_right<Config<64, 64, 1, 1, 1, 2>, kit::Split>(each);
}

// Each step belongs to one of the consumers, and is numbered as the loader numbers it.
TEST_F(KitGemm, TracedPingPong) {
  using Traced = kit::TracedGemm<Config<128, 128, 4, 1>>;
  using Product = Scheduled<Traced, kit::PingPong>;
  const ps::Stream stream(gpu);
  const gemm::Matrices matrices(stream, size, 1);
  const gemm::Problem& p = matrices.problem(0);
  const kit::GridOrder<Traced> order(p.m, p.n, 8);
  const auto launch = [&](const kit::TraceBuffer<true>& buffer) {
    matrices.poison(0);
    kit::launch_gemm<Product>(gemm::view_a(p), gemm::view_b(p),
                              kit::gemm_map(gemm::view_c(p), kit::GemmStore<Traced>::box_rows),
                              order, 2, ps::cuda_stream(stream), buffer);
  };
  const ladder::TracedKernel kernel{
      .name = "ping-pong", .roles = gemm::engine_roles(), .room = {}, .launch = launch};
  const ps::KernelTrace trace = ladder::run_traced(kernel, stream);
  EXPECT_NO_THROW(matrices.check(0));
  const ps::KernelRoles result = trace.roles({.most_blocks = kernel.room.blocks});
  EXPECT_EQ(result.lost, 0u);
  using Step = std::pair<unsigned, std::uint64_t>;  // of a block
  std::set<Step> loaded, multiplied;
  for (const ps::RoleSpan& span : result.spans) {
    if (span.role == 0) EXPECT_TRUE(loaded.emplace(span.block, span.tile).second);
    if (span.role != kit::gemm_products_role(0) && span.role != kit::gemm_products_role(1)) {
      continue;
    }
    EXPECT_TRUE(multiplied.emplace(span.block, span.tile).second)
        << "step " << span.tile << " of block " << span.block << " by both consumers";
  }
  EXPECT_EQ(loaded, multiplied);
  EXPECT_FALSE(loaded.empty());
}

}  // namespace
