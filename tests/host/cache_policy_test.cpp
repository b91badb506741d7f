// The order in which policies evict.
#include "penstock/host/cache_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "penstock/base/error.h"

namespace ps {
namespace {

using Keys = std::vector<CacheKey>;

Keys victims(const CachePolicy& policy) {
  Keys result;
  policy.victims([&](CacheKey key) {
    result.push_back(key);
    return true;
  });
  return result;
}

TEST(LruPolicy, EvictsWhatWasUsedLongestAgo) {
  const auto policy = lru_policy();
  for (const CacheKey key : {1, 2, 3}) policy->added(key);
  policy->used(1);
  EXPECT_EQ(victims(*policy), (Keys{2, 3, 1}));
  policy->removed(3);
  policy->removed(3);
  policy->added(4);
  policy->used(2);
  EXPECT_EQ(victims(*policy), (Keys{1, 4, 2}));
  EXPECT_FALSE(policy->keeps(1));
}

TEST(LruPolicy, StopsWhenItIsTold) {
  const auto policy = lru_policy();
  for (const CacheKey key : {1, 2, 3}) policy->added(key);
  int visited = 0;
  policy->victims([&](CacheKey) { return ++visited < 2; });
  EXPECT_EQ(visited, 2);
}

TEST(FrequencyPolicy, EvictsWhatIsUsedLeast) {
  const auto policy = frequency_policy();
  for (const CacheKey key : {1, 2, 3}) policy->added(key);
  EXPECT_EQ(victims(*policy), (Keys{1, 2, 3}));
  policy->used(1);
  policy->used(1);
  policy->used(2);
  EXPECT_EQ(victims(*policy), (Keys{3, 2, 1}));
}

TEST(FrequencyPolicy, OldUsesFade) {
  const auto policy = frequency_policy({.half_life = 2});
  policy->added(1);
  for (int i = 0; i < 20; ++i) policy->used(1);
  policy->added(2);
  EXPECT_EQ(victims(*policy), (Keys{2, 1})) << "many recent uses count more than one";
  for (int i = 0; i < 3; ++i) policy->used(2);
  EXPECT_EQ(victims(*policy), (Keys{1, 2})) << "one use counts less after every half-life";
}

// A key that comes and goes must be able to earn its place.
TEST(FrequencyPolicy, RemembersKeysThatWereEvicted) {
  const auto policy = frequency_policy();
  policy->added(1);
  for (int i = 0; i < 3; ++i) policy->used(1);
  for (int i = 0; i < 5; ++i) {
    policy->added(2);
    policy->removed(2);
  }
  policy->added(2);
  EXPECT_EQ(victims(*policy), (Keys{1, 2}));
}

TEST(FrequencyPolicy, ForgetsTheRarestKeys) {
  const auto policy = frequency_policy({.remembered = 3});
  for (int i = 0; i < 4; ++i) {
    policy->added(1);
    policy->removed(1);
  }
  // Many keys pass by; key 1 has the highest count of those that are not cached.
  for (CacheKey key = 10; key < 100; ++key) {
    policy->added(key);
    policy->removed(key);
  }
  policy->added(200);
  policy->used(200);
  policy->added(1);
  EXPECT_EQ(victims(*policy), (Keys{200, 1}));
  policy->removed(200);
  policy->removed(1);
  // More keys are cached than are remembered: none of them is forgotten.
  for (CacheKey key = 300; key < 310; ++key) policy->added(key);
  EXPECT_EQ(victims(*policy).size(), 10U);
}

TEST(FrequencyPolicy, CountsDoNotOverflow) {
  const auto policy = frequency_policy({.half_life = 1e-3});
  for (const CacheKey key : {1, 2}) policy->added(key);
  for (int i = 0; i < 100000; ++i) policy->used(1 + i % 2);
  EXPECT_EQ(victims(*policy), (Keys{1, 2}));
}

// The order is that of the sums of decayed uses.
TEST(FrequencyPolicy, AgreesWithTheDefinition) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    constexpr double half_life = 37;
    const auto policy = frequency_policy({.half_life = half_life});
    std::vector<std::vector<int>> uses(12);
    for (int time = 1; time <= 500; ++time) {
      const CacheKey key = random() % uses.size();
      uses[key].empty() ? policy->added(key) : policy->used(key);
      uses[key].push_back(time);
    }
    const auto count = [&](CacheKey key) {
      double sum = 0;
      for (const int use : uses[key]) sum += std::exp2((use - 500) / half_life);
      return sum;
    };
    const Keys order = victims(*policy);
    ASSERT_EQ(order.size(), uses.size());
    for (std::size_t i = 1; i < order.size(); ++i) {
      EXPECT_LE(count(order[i - 1]), count(order[i]) * (1 + 1e-9));
    }
  }
}

// Zipf-distributed uses, as of experts: the hit rate of a policy with room for a quarter of them.
double hit_rate(CachePolicy& policy, double& best_fixed_set) {
  constexpr std::size_t keys = 128, room = 32;
  std::vector<double> weights;
  for (std::size_t i = 0; i < keys; ++i) weights.push_back(1.0 / static_cast<double>(i + 1));
  std::discrete_distribution<CacheKey> draw(weights.begin(), weights.end());
  std::mt19937 random(7);
  std::set<CacheKey> cached;
  int hits = 0, fixed_hits = 0, counted = 0;
  for (int i = 0; i < 40000; ++i) {
    const CacheKey key = draw(random);
    if (i >= 8000) {
      ++counted;
      hits += cached.contains(key);
      fixed_hits += key < room;
    }
    if (cached.contains(key)) {
      policy.used(key);
      continue;
    }
    if (cached.size() == room) {
      CacheKey victim = 0;
      policy.victims([&](CacheKey first) {
        victim = first;
        return false;
      });
      policy.removed(victim);
      cached.erase(victim);
    }
    policy.added(key);
    cached.insert(key);
  }
  best_fixed_set = static_cast<double>(fixed_hits) / counted;
  return static_cast<double>(hits) / counted;
}

TEST(FrequencyPolicy, ComesCloseToTheBestFixedSetForSkewedUses) {
  double best = 0;
  const double frequency = hit_rate(*frequency_policy(), best);
  EXPECT_GE(frequency, 0.95 * best);
  EXPECT_GT(frequency, hit_rate(*lru_policy(), best));
}

TEST(PinnedPolicy, NeverEvictsItsKeys) {
  const auto policy = pinned_policy({2, 4}, lru_policy());
  for (const CacheKey key : {1, 2, 3, 4}) policy->added(key);
  policy->used(1);
  policy->used(2);
  EXPECT_EQ(victims(*policy), (Keys{3, 1}));
  EXPECT_TRUE(policy->keeps(2));
  EXPECT_TRUE(policy->keeps(4));
  EXPECT_FALSE(policy->keeps(1));
  policy->removed(2);  // a fill that failed
  policy->removed(3);
  EXPECT_EQ(victims(*policy), (Keys{1}));
}

TEST(PinnedPolicy, Nests) {
  const auto policy = pinned_policy({1}, pinned_policy({2}, frequency_policy()));
  for (const CacheKey key : {1, 2, 3}) policy->added(key);
  EXPECT_TRUE(policy->keeps(2));
  EXPECT_EQ(victims(*policy), (Keys{3}));
}

TEST(CachePolicies, RefuseNonsense) {
  EXPECT_THROW(frequency_policy({.half_life = 0}), InvalidArgument);
  try {
    frequency_policy({.half_life = 1e-308});  // counts would become infinite, and then NaN
    FAIL() << "a half-life of 1e-308 uses";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "half_life");
    EXPECT_EQ(error.expected(), "a finite number of uses, at least 0.001");
    EXPECT_EQ(error.given(), "1e-308");
  }
  EXPECT_THROW(frequency_policy({.half_life = -1}), InvalidArgument);
  EXPECT_THROW(frequency_policy({.half_life = std::nan("")}), InvalidArgument);
  EXPECT_THROW(frequency_policy({.half_life = std::numeric_limits<double>::infinity()}),
               InvalidArgument);
  EXPECT_THROW(frequency_policy({.remembered = 0}), InvalidArgument);
  EXPECT_THROW(pinned_policy({1}, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace ps
