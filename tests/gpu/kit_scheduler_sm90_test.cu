#include "penstock/kit/scheduler.h"

#include <type_traits>

#include "gpu/kit_test.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/warp.cuh"

namespace {

using ps::kit::GroupedOrder;
using ps::kit::Tile;
using ps::test::DeviceArray;
using ps::test::loiter;
using ps::test::same;

using Barrier = ps::test::Patient<ps::kit::Barrier>;

struct AtomicCounter {
  unsigned* word;
  __device__ unsigned take() const { return atomicAdd(word, 1U); }
};

// Counts every tile that `tiles` gives; one place more for those below the last row.
template <class Tiles>
__device__ void count_tiles(const GroupedOrder& order, Tiles tiles, unsigned* counts) {
  for (Tile tile; tiles.take(tile);) {
    loiter(tile.row + tile.column);
    const bool inside = tile.row < order.rows() && tile.column < order.columns();
    const unsigned all = order.rows() * order.columns();
    atomicAdd(counts + (inside ? tile.row * order.columns() + tile.column : all), 1U);
  }
}

enum class Kind { fixed, persistent, dynamic };

template <Kind kind>
__global__ void take_tiles(const GroupedOrder order, unsigned* word, unsigned* counts) {
  if (threadIdx.x != 0) return;
  if constexpr (kind == Kind::fixed) {
    count_tiles(order, ps::kit::StaticTiles<GroupedOrder>(order, blockIdx.x), counts);
  } else if constexpr (kind == Kind::persistent) {
    count_tiles(order, ps::kit::PersistentTiles<GroupedOrder>(order, blockIdx.x, gridDim.x),
                counts);
  } else {
    count_tiles(order,
                ps::kit::DynamicTiles<GroupedOrder, AtomicCounter>(order, blockIdx.x, {word}),
                counts);
  }
}

// The first warp's leader takes numbers; all threads of two other warps follow it.
constexpr unsigned followers = 64;

template <unsigned depth>
__global__ void lead(const GroupedOrder order, unsigned* word, unsigned* led, unsigned* followed) {
  __shared__ ps::kit::Handover<Barrier, depth> handover;
  if (threadIdx.x == 0) {
    handover.ring.init(1, followers);
    ps::kit::fence_barrier_init();
  }
  __syncthreads();
  using Leader = ps::kit::Leader<AtomicCounter, Barrier, depth>;
  using Follower = ps::kit::Follower<Barrier, depth>;
  if (ps::kit::warp_index() == 0) {
    if (threadIdx.x != 0) return;
    const ps::kit::DynamicTiles<GroupedOrder, Leader> tiles(order, blockIdx.x,
                                                            Leader(AtomicCounter{word}, handover));
    count_tiles(order, tiles, led);
  } else {
    const ps::kit::DynamicTiles<GroupedOrder, Follower> tiles(order, blockIdx.x,
                                                              Follower(handover));
    count_tiles(order, tiles, followed);
  }
}

class KitSchedulerGpu : public ps::test::KitSm90Test {
 protected:
  static constexpr unsigned grid = 96;

  GroupedOrder any_order(unsigned cluster = 1) {
    return {static_cast<std::uint64_t>(from(1, 60)), static_cast<std::uint64_t>(from(1, 60)),
            static_cast<unsigned>(from(1, 10)) * cluster, cluster};
  }

  static std::vector<unsigned> zeros(const GroupedOrder& order) {
    return std::vector<unsigned>(order.rows() * order.columns() + 1, 0);
  }

  // Each tile was taken `times` times, and as many below the last row as fill up the clusters.
  static testing::AssertionResult are_taken(const std::vector<unsigned>& counts,
                                            const GroupedOrder& order, unsigned times = 1) {
    const unsigned all = order.rows() * order.columns();
    return same(counts,
                [&](std::size_t i) { return i < all ? times : times * (order.blocks() - all); });
  }

  static std::string describe(const GroupedOrder& order) {
    return std::to_string(order.rows()) + " by " + std::to_string(order.columns()) +
           " tiles, clusters of " + std::to_string(order.cluster().value());
  }

  // `blocks`: 0 for one a tile.
  template <Kind kind>
  void check(unsigned blocks, unsigned cluster) {
    for (int i = 0; i < 10; ++i) {
      const GroupedOrder order = any_order(cluster);
      SCOPED_TRACE(describe(order));
      const DeviceArray<unsigned> counts(zeros(order)), word(std::vector<unsigned>{0});
      const unsigned launched = blocks == 0 ? order.blocks() : blocks;
      run(take_tiles<kind>, {.grid = launched, .block = 32, .cluster = cluster}, order, word.data(),
          counts.data());
      EXPECT_TRUE(are_taken(counts.values(), order));
      // Every block sees the end once.
      EXPECT_EQ(word.values()[0], kind == Kind::dynamic ? order.count() + launched : 0);
    }
  }
};

TEST_F(KitSchedulerGpu, StaticTakesEachTileOnce) {
  check<Kind::fixed>(0, 1);
  check<Kind::fixed>(0, 4);
}

TEST_F(KitSchedulerGpu, PersistentTakesEachTileOnce) {
  check<Kind::persistent>(grid, 1);
  check<Kind::persistent>(grid, 2);
  check<Kind::persistent>(grid, 4);
}

TEST_F(KitSchedulerGpu, DynamicTakesEachTileOnce) {
  check<Kind::dynamic>(1, 1);
  check<Kind::dynamic>(grid, 1);
}

TEST_F(KitSchedulerGpu, FollowersGetTheLeadersTiles) {
  const auto check_depth = [&](auto depth) {
    for (int i = 0; i < 6; ++i) {
      const GroupedOrder order = any_order();
      SCOPED_TRACE(describe(order) + ", depth " + std::to_string(depth()));
      const DeviceArray<unsigned> led(zeros(order)), followed(zeros(order));
      const DeviceArray<unsigned> word(std::vector<unsigned>{0});
      run(lead<depth()>, {.grid = grid, .block = 32 + followers}, order, word.data(), led.data(),
          followed.data());
      EXPECT_TRUE(are_taken(led.values(), order));
      EXPECT_TRUE(are_taken(followed.values(), order, followers));
      EXPECT_EQ(word.values()[0], order.count() + grid);
    }
  };
  check_depth(std::integral_constant<unsigned, 1>());
  check_depth(std::integral_constant<unsigned, 2>());
  check_depth(std::integral_constant<unsigned, 4>());
}

}  // namespace
