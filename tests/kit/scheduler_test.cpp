#include "penstock/kit/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kit/host_barrier.h"
#include "penstock/base/error.h"
#include "support/watchdog.h"

namespace {

using ps::kit::Divisor;
using ps::kit::DynamicTiles;
using ps::kit::Follower;
using ps::kit::GroupedOrder;
using ps::kit::Handover;
using ps::kit::Leader;
using ps::kit::PersistentTiles;
using ps::kit::StaticTiles;
using ps::kit::Tile;

using Place = std::pair<unsigned, unsigned>;

Place place(const Tile& tile) { return {tile.row, tile.column}; }

// Another seed every time; SCOPED_TRACE prints it.
struct Random {
  unsigned seed = std::random_device{}();
  std::mt19937 engine{seed};

  unsigned below(unsigned limit) { return static_cast<unsigned>(engine() % limit); }
  // Of any magnitude below 2^31.
  unsigned number() { return static_cast<unsigned>(engine() >> (1 + below(31))); }
};

TEST(Divisor, DividesAllNumbersBelowItsLimit) {
  Random random;
  SCOPED_TRACE(testing::Message() << "seed " << random.seed);
  constexpr unsigned limit = 1U << 31;
  std::vector<unsigned> divisors;
  for (unsigned d = 1; d <= 300; ++d) divisors.push_back(d);
  for (unsigned bit = 8; bit < 31; ++bit) {
    for (const unsigned d : {(1U << bit) - 1, 1U << bit, (1U << bit) + 1}) divisors.push_back(d);
  }
  for (const unsigned d : {limit - 1, limit}) divisors.push_back(d);
  for (int i = 0; i < 1000; ++i) divisors.push_back(1 + random.number());
  for (const unsigned d : divisors) {
    const Divisor divisor(d);
    ASSERT_EQ(divisor.value(), d);
    std::vector<unsigned> numbers{0, 1, d - 1, d, limit - 1, (limit - 1) / d * d};
    for (int i = 0; i < 100; ++i) {
      const unsigned number = random.number();
      const unsigned multiple = number / d * d;
      numbers.insert(numbers.end(), {number, multiple, multiple + d - 1});
      if (multiple > 0) numbers.push_back(multiple - 1);
    }
    for (const unsigned number : numbers) {
      if (number < limit) {
        ASSERT_EQ(divisor.divide(number), number / d) << number << " / " << d;
      }
    }
  }
}

TEST(GroupedOrder, GoesColumnByColumnInPanels) {
  const GroupedOrder order(5, 3, 2);
  const std::vector<Place> expected{{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2}, {2, 0}, {3, 0},
                                    {2, 1}, {3, 1}, {2, 2}, {3, 2}, {4, 0}, {4, 1}, {4, 2}};
  std::vector<Place> places;
  for (unsigned n = 0; n < order.count(); ++n) places.push_back(place(order.tile(n)));
  EXPECT_EQ(places, expected);
  EXPECT_EQ(place(GroupedOrder(5, 3, 1).tile(4)), Place(1, 1));    // row by row
  EXPECT_EQ(place(GroupedOrder(5, 3, 100).tile(4)), Place(4, 0));  // column by column
  EXPECT_EQ(place(GroupedOrder(5, 3, 4, 2).tile(1, 1)), Place(3, 0));
  EXPECT_EQ(order.rows(), 5U);
  EXPECT_EQ(order.columns(), 3U);
}

// How often each tile was taken. There may be more rows than the order has, to fill up the last
// clusters; they count like the others.
class Taken {
 public:
  explicit Taken(const GroupedOrder& order)
      : rows_(order.columns() == 0 ? 0 : order.blocks() / order.columns()),
        columns_(order.columns()),
        times_(order.blocks()) {}

  template <class Scheduler>
  bool from(Scheduler& scheduler) {
    Tile tile;
    if (!scheduler.take(tile)) return false;
    const bool inside = tile.row < rows_ && tile.column < columns_;
    ++(inside ? times_[std::size_t{tile.row} * columns_ + tile.column] : outside_);
    return true;
  }

  void expect_each_once(const char* scheduler) const {
    const auto once = std::count(times_.begin(), times_.end(), 1);
    ASSERT_EQ(static_cast<std::size_t>(once), times_.size()) << scheduler;
    ASSERT_EQ(outside_, 0U) << scheduler;
  }

 private:
  unsigned rows_, columns_;
  std::vector<unsigned> times_;
  unsigned outside_ = 0;
};

// What a cluster's blocks all get.
struct ClusterNumber {
  const unsigned* number;
  unsigned take() const { return *number; }
};

// The next number is a random cluster's, until each has seen the end.
void take_dynamically(const GroupedOrder& order, unsigned blocks, Random& random, Taken& taken) {
  const unsigned cluster = order.cluster().value();
  unsigned number = 0;
  std::vector<unsigned> left;
  for (unsigned block = 0; block < blocks; block += cluster) left.push_back(block);
  for (; !left.empty(); ++number) {
    std::swap(left[random.engine() % left.size()], left.back());
    bool some = false;
    for (unsigned rank = 0; rank < cluster; ++rank) {
      DynamicTiles tiles(order, left.back() + rank, ClusterNumber{&number});
      some = taken.from(tiles);
    }
    if (!some) left.pop_back();
  }
}

void expect_coverage(unsigned rows, unsigned columns, unsigned group, unsigned cluster,
                     unsigned blocks, Random& random) {
  SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", group " << group << ", cluster "
                                  << cluster << ", " << blocks << " blocks");
  const GroupedOrder order(rows, columns, group, cluster);
  ASSERT_EQ(order.blocks(), (rows + cluster - 1) / cluster * cluster * columns);
  Taken once(order), persistent(order), dynamic(order);
  for (unsigned block = 0; block < order.blocks() + blocks; ++block) {
    StaticTiles tiles(order, block);
    while (once.from(tiles)) {
    }
  }
  for (unsigned block = 0; block < blocks; ++block) {
    PersistentTiles tiles(order, block, blocks);
    while (persistent.from(tiles)) {
    }
  }
  take_dynamically(order, blocks, random, dynamic);
  once.expect_each_once("static");
  persistent.expect_each_once("persistent");
  dynamic.expect_each_once("dynamic");
}

TEST(Schedulers, TakeEveryTileOnceAtTheExtremes) {
  Random random;
  SCOPED_TRACE(testing::Message() << "seed " << random.seed);
  for (const unsigned cluster : {1U, 2U, 3U, 4U, 8U, 16U}) {
    for (const unsigned group : {cluster, 2 * cluster, 5 * cluster, 1000 * cluster}) {
      for (const unsigned blocks : {cluster, 7 * cluster, 132 / cluster * cluster}) {
        for (const Place& size : std::vector<Place>{{0, 0},
                                                    {0, 5},
                                                    {5, 0},
                                                    {1, 1},
                                                    {1, 40},
                                                    {40, 1},
                                                    {cluster, cluster},
                                                    {cluster + 1, 2},
                                                    {group, 3},
                                                    {2 * group - 1, 1},
                                                    {11, 12},    // a wave of 132 blocks
                                                    {7, 19}}) {  // a wave and a tile
          if (size.first > 100) continue;
          expect_coverage(size.first, size.second, group, cluster, blocks, random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Schedulers, TakeEveryTileOnceWhateverTheSize) {
  Random random;
  SCOPED_TRACE(testing::Message() << "seed " << random.seed);
  for (int trial = 0; trial < 2000; ++trial) {
    const unsigned cluster = 1U << random.below(4);
    const unsigned group = cluster * (1 + random.below(12));
    const unsigned blocks = cluster * (1 + random.below(150));
    expect_coverage(random.below(33), random.below(33), group, cluster, blocks, random);
    if (HasFatalFailure()) return;
  }
}

// One take of every block that is not done.
std::vector<Place> next_wave(std::vector<PersistentTiles<GroupedOrder>>& blocks) {
  std::vector<Place> wave;
  std::vector<PersistentTiles<GroupedOrder>> left;
  for (PersistentTiles<GroupedOrder>& tiles : blocks) {
    Tile tile;
    if (!tiles.take(tile)) continue;
    wave.push_back(place(tile));
    left.push_back(tiles);
  }
  blocks = left;
  return wave;
}

// Blocks that run together have numbers that follow each other.
TEST(Schedulers, TilesOfAWaveLieTogether) {
  Random random;
  SCOPED_TRACE(testing::Message() << "seed " << random.seed);
  for (int trial = 0; trial < 300; ++trial) {
    const unsigned cluster = 1U << random.below(3);
    const unsigned group = cluster * (1 + random.below(8));
    const GroupedOrder order(1 + random.below(60), 1 + random.below(60), group, cluster);
    const unsigned clusters = 1 + random.below(66);
    std::vector<PersistentTiles<GroupedOrder>> blocks;
    for (unsigned block = 0; block < clusters * cluster; ++block) {
      blocks.emplace_back(order, block, clusters * cluster);
    }
    while (!blocks.empty()) {
      const std::vector<Place> wave = next_wave(blocks);
      std::vector<std::vector<Place>> panels(1 + order.rows() / group);
      for (const Place& at : wave) panels.at(at.first / group).push_back(at);
      unsigned touched = 0;
      for (std::size_t p = 0; p < panels.size(); ++p) {
        if (panels[p].empty()) continue;
        ++touched;
        // As few columns as so many tiles need, and one that is begun at either end.
        std::set<unsigned> columns;
        for (const Place& at : panels[p]) columns.insert(at.second);
        const auto all = (order.rows() + cluster - 1) / cluster * cluster;
        const auto height = std::min(group, all - static_cast<unsigned>(p) * group);
        ASSERT_LE(columns.size(), (panels[p].size() + height - 1) / height + 1);
        ASSERT_EQ(*columns.rbegin() - *columns.begin() + 1, columns.size());
      }
      // No more panels than so many tiles need, and one that is begun at either end.
      ASSERT_LE(touched, wave.size() / (group * order.columns()) + 2);
      // A cluster's blocks are neighbours, and share a column.
      for (std::size_t i = 0; i < wave.size(); ++i) {
        const auto rank = static_cast<unsigned>(i % cluster);
        ASSERT_EQ(wave[i], Place(wave[i - rank].first + rank, wave[i - rank].second));
        ASSERT_EQ(wave[i].first % cluster, rank);
      }
    }
  }
}

// The numbering once more, with plain division in 64 bits.
Place plain(std::uint64_t rows, std::uint64_t columns, std::uint64_t group, std::uint64_t number) {
  const std::uint64_t first = number / (group * columns) * group;
  const std::uint64_t height = std::min(group, rows - first);
  const std::uint64_t inside = number - first * columns;
  return {static_cast<unsigned>(first + inside % height), static_cast<unsigned>(inside / height)};
}

TEST(GroupedOrder, NumbersAreRightUpToTheLimit) {
  Random random;
  SCOPED_TRACE(testing::Message() << "seed " << random.seed);
  constexpr unsigned limit = 1U << 31;
  for (const Place& size : std::vector<Place>{{46'340, 46'340},
                                              {limit - 1, 1},
                                              {1, limit - 1},
                                              {32'768, 65'535},
                                              {3, limit / 3},
                                              {limit / 3, 3}}) {
    const auto [rows, columns] = size;
    for (const unsigned group : {1U, 3U, 8U, 1000U, ~0U}) {
      const GroupedOrder order(rows, columns, group);
      ASSERT_EQ(order.count(), rows * columns);
      std::vector<unsigned> numbers{0, order.count() - 1, order.count() / 2};
      for (int i = 0; i < 1000; ++i) numbers.push_back(random.below(order.count()));
      for (const unsigned number : numbers) {
        ASSERT_EQ(place(order.tile(number)), plain(rows, columns, group, number))
            << rows << " x " << columns << ", group " << group << ", number " << number;
      }
      // Strides near the limit do not come round to the beginning.
      PersistentTiles tiles(order, order.count() - 1, limit - 1);
      Tile tile;
      ASSERT_TRUE(tiles.take(tile));
      ASSERT_EQ(place(tile), place(order.tile(order.count() - 1)));
      ASSERT_FALSE(tiles.take(tile));
      ASSERT_FALSE(tiles.take(tile));
    }
  }
}

TEST(GroupedOrder, RefusesWhatItCannotNumber) {
  const auto argument = [](std::uint64_t rows, std::uint64_t columns, unsigned group,
                           unsigned cluster) -> std::string {
    try {
      const GroupedOrder order(rows, columns, group, cluster);
      return "accepted";
    } catch (const ps::InvalidArgument& error) {
      return error.argument() + ": " + error.given();
    }
  };
  constexpr std::uint64_t limit = std::uint64_t{1} << 31, huge = ~std::uint64_t{0};
  EXPECT_EQ(argument(65'536, 65'536, 8, 1), "rows * columns: 4294967296");  // 0 in 32 bits
  EXPECT_EQ(argument(65'537, 65'537, 8, 1), "rows * columns: 4295098369");
  EXPECT_EQ(argument(65'536, 32'768, 8, 1), "rows * columns: 2147483648");
  EXPECT_EQ(argument(limit - 1, limit - 1, 8, 1), "rows * columns: 4611686014132420609");
  EXPECT_EQ(argument(limit - 1, 1, 8, 2), "rows * columns: 2147483647");  // filled up to clusters
  EXPECT_EQ(argument(limit, 1, 8, 1), "rows: 2147483648");
  EXPECT_EQ(argument(huge, 0, 8, 1), "rows: 18446744073709551615");
  EXPECT_EQ(argument(1, limit, 8, 1), "columns: 2147483648");
  EXPECT_EQ(argument(4, 4, 0, 1), "group: 0");
  EXPECT_EQ(argument(4, 4, 6, 4), "group: 6");
  EXPECT_EQ(argument(4, 4, 8, 0), "cluster: 0");
  EXPECT_EQ(argument(4, 4, 17, 17), "cluster: 17");
  EXPECT_EQ(argument(limit - 1, 0, 8, 4), "accepted");
  EXPECT_EQ(argument(limit - 1, 1, 8, 1), "accepted");
}

// Three blocks share a counter; in each, one thread leads and two follow.
TEST(DynamicTiles, EveryRoleOfABlockGetsTheSameTiles) {
  struct SharedCounter {
    std::atomic<unsigned>* next;
    unsigned take() const { return next->fetch_add(1); }
  };
  using Handed = Handover<ps::test::HostBarrier, 2>;
  constexpr unsigned blocks = 3, roles = 3;
  const ps::test::Watchdog watchdog("tiles handed on through a ring");
  const GroupedOrder order(37, 41);
  std::atomic<unsigned> next{0};
  std::vector<Handed> handed(blocks);
  std::vector<std::vector<Place>> taken(blocks * roles);
  const auto work = [](auto tiles, std::vector<Place>& into) {
    for (Tile tile; tiles.take(tile);) into.push_back(place(tile));
  };
  std::vector<std::thread> threads;
  for (unsigned block = 0; block < blocks; ++block) {
    handed[block].ring.init(1, roles - 1);
    for (unsigned role = 0; role < roles; ++role) {
      threads.emplace_back([&, block, role] {
        std::vector<Place>& into = taken[block * roles + role];
        if (role == 0) {
          work(DynamicTiles(order, block, Leader(SharedCounter{&next}, handed[block])), into);
        } else {
          work(DynamicTiles(order, block, Follower(handed[block])), into);
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<Place> all, expected;
  for (unsigned block = 0; block < blocks; ++block) {
    const std::vector<Place>& led = taken[block * roles];
    for (unsigned role = 1; role < roles; ++role) EXPECT_EQ(taken[block * roles + role], led);
    all.insert(all.end(), led.begin(), led.end());
  }
  for (unsigned n = 0; n < order.count(); ++n) expected.push_back(place(order.tile(n)));
  std::sort(all.begin(), all.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(all, expected);
}

}  // namespace
