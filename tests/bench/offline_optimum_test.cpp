// The offline optimum: known cases, and every way to evict on short sequences.
#include "support/offline_optimum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace bench {
namespace {

using Keys = std::vector<std::int64_t>;

// By trying everything: after each access, the cache may keep what it had, and the new key instead
// of any other.
std::uint64_t best_of_all(const Keys& accesses, std::size_t slots, std::size_t from, std::size_t at,
                          const std::set<std::int64_t>& kept) {
  if (at == accesses.size()) return 0;
  const std::uint64_t hit = kept.contains(accesses[at]) ? 1 : 0;
  std::uint64_t best = best_of_all(accesses, slots, from, at + 1, kept);
  if (hit == 0) {
    std::set<std::int64_t> larger = kept;
    larger.insert(accesses[at]);
    if (larger.size() <= slots) {
      best = std::max(best, best_of_all(accesses, slots, from, at + 1, larger));
    } else {
      for (const std::int64_t victim : kept) {
        std::set<std::int64_t> changed = larger;
        changed.erase(victim);
        best = std::max(best, best_of_all(accesses, slots, from, at + 1, changed));
      }
    }
  }
  return best + (at >= from ? hit : 0);
}

TEST(OfflineOptimum, KnownSequences) {
  EXPECT_EQ(offline_optimum({}, 3), 0U);
  EXPECT_EQ(offline_optimum({1, 1, 1}, 0), 0U);
  EXPECT_EQ(offline_optimum({1, 1, 1}, 1), 2U);
  // The textbook's, which has 9 misses in 20 accesses if every new key must be kept.
  EXPECT_EQ(offline_optimum({7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1}, 3), 12U);
  EXPECT_EQ(offline_optimum({1, 2, 3, 1, 2, 3}, 3), 3U);
  EXPECT_EQ(offline_optimum({1, 2, 3, 1, 2, 3}, 2), 2U);
}

TEST(OfflineOptimum, CountsFromThere) {
  EXPECT_EQ(offline_optimum({1, 2, 1, 2, 1, 2}, 2, 3), 3U);
  EXPECT_EQ(offline_optimum({1, 2, 1, 2, 1, 2}, 2, 6), 0U);
}

TEST(OfflineOptimum, NoWayToEvictIsBetter) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    Keys accesses(std::uniform_int_distribution<std::size_t>(1, 9)(random));
    for (std::int64_t& key : accesses) key = std::uniform_int_distribution<int>(0, 4)(random);
    const std::size_t slots = std::uniform_int_distribution<std::size_t>(0, 3)(random);
    ASSERT_EQ(offline_optimum(accesses, slots), best_of_all(accesses, slots, 0, 0, {})) << trial;
  }
}

}  // namespace
}  // namespace bench
