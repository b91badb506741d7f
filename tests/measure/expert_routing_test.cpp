// What caches are compared with: known cases, and every way to evict and every set on short
// sequences. And the routing that is drawn.
#include "penstock/measure/expert_routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <vector>

namespace ps {
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
  EXPECT_EQ(offline_optimum(Keys{}, 3), 0U);
  EXPECT_EQ(offline_optimum(Keys{1, 1, 1}, 0), 0U);
  EXPECT_EQ(offline_optimum(Keys{1, 1, 1}, 1), 2U);
  // The textbook's, which has 9 misses in 20 accesses if every new key must be kept.
  EXPECT_EQ(offline_optimum(Keys{7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1}, 3),
            12U);
  EXPECT_EQ(offline_optimum(Keys{1, 2, 3, 1, 2, 3}, 3), 3U);
  EXPECT_EQ(offline_optimum(Keys{1, 2, 3, 1, 2, 3}, 2), 2U);
}

TEST(OfflineOptimum, CountsFromThere) {
  EXPECT_EQ(offline_optimum(Keys{1, 2, 1, 2, 1, 2}, 2, 3), 3U);
  EXPECT_EQ(offline_optimum(Keys{1, 2, 1, 2, 1, 2}, 2, 6), 0U);
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

std::uint64_t hits(const Keys& accesses, const Keys& kept) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      accesses, [&](std::int64_t key) { return std::ranges::find(kept, key) != kept.end(); }));
}

TEST(BestFixedSet, KnownSequences) {
  EXPECT_EQ(best_fixed_set(Keys{}, 3), 0U);
  EXPECT_EQ(best_fixed_set(Keys{5, 5, 7}, 0), 0U);
  EXPECT_EQ(best_fixed_set(Keys{5, 7, 5, 3, 3, 5}, 2), 5U);
  EXPECT_EQ(best_fixed_set(Keys{9, 8}, 5), 2U) << "it need not be filled first";
}

TEST(BestFixedSet, NoOtherSetHasMoreHits) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    Keys accesses(std::uniform_int_distribution<std::size_t>(1, 20)(random));
    for (std::int64_t& key : accesses) key = std::uniform_int_distribution<int>(0, 5)(random);
    const std::size_t slots = std::uniform_int_distribution<std::size_t>(0, 4)(random);
    std::uint64_t best = 0;
    for (unsigned set = 0; set < 1U << 6; ++set) {
      Keys kept;
      for (int key = 0; key < 6; ++key) {
        if ((set >> key & 1U) != 0) kept.push_back(key);
      }
      if (kept.size() <= slots) best = std::max(best, hits(accesses, kept));
    }
    ASSERT_EQ(best_fixed_set(accesses, slots), best) << trial;
    ASSERT_LE(best, offline_optimum(accesses, slots) + slots) << "each key misses once";
  }
}

TEST(DrawExperts, EveryTokenHasDifferentOnesAndLikelyOnesComeMoreOften) {
  std::mt19937_64 random(3);
  const auto shares = zipf_shares(2, 8, random);
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_NE(shares[0], shares[1]) << "an order of its own per layer";
  std::vector<double> sorted = shares[1];
  std::ranges::sort(sorted, std::greater());
  for (std::size_t rank = 0; rank < 8; ++rank) {
    EXPECT_DOUBLE_EQ(sorted[rank], 1.0 / static_cast<double>(rank + 1));
  }
  const auto ids = draw_experts(500, 3, shares[0], random);
  ASSERT_EQ(ids.size(), 1500U);
  std::vector<int> counts(8);
  for (std::size_t token = 0; token < 500; ++token) {
    const std::set<std::int32_t> chosen(&ids[3 * token], &ids[3 * token] + 3);
    EXPECT_EQ(chosen.size(), 3U) << token;
    for (const std::int32_t id : chosen) ++counts.at(static_cast<std::size_t>(id));
  }
  const auto most = std::ranges::max_element(shares[0]) - shares[0].begin();
  EXPECT_EQ(std::ranges::max_element(counts) - counts.begin(), most);
  EXPECT_EQ(draw_experts(2, 8, shares[0], random),
            (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace ps
