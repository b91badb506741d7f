#include "penstock/kit/launch_cache.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace {

using Cache = ps::kit::detail::LaunchCache;
using Key = Cache::Key;

// Questions about kernels of a library that lies anywhere in memory: up to four about each kernel.
std::vector<Key> keys_of(std::size_t count, std::mt19937_64& random) {
  const std::uint64_t base = (random() % (1U << 30U) + 1) * 4096;
  std::vector<Key> keys;
  for (std::uint64_t kernel = base; keys.size() < count; kernel += 16 + random() % 64 * 16) {
    const auto* const address = reinterpret_cast<const void*>(kernel);
    const std::size_t shared = random() % 200 * 1024;
    for (const Key& each : {Key{address, 0, ~0U, 0, 0}, Key{address, 0, 0, 0, 1},
                            Key{address, 0, 1, 384, shared}, Key{address, 1, 1, 384, shared}}) {
      if (keys.size() < count) keys.push_back(each);
    }
  }
  return keys;
}

std::size_t found(const Cache& cache, const std::vector<Key>& keys) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const unsigned* value = cache.find(keys[i]);
    if (value == nullptr) continue;
    EXPECT_EQ(*value, i);
    ++count;
  }
  return count;
}

// Whatever the addresses of the kernels are, which differ from process to process.
TEST(LaunchCache, KeepsEveryKeyUntilItIsFull) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const std::vector<Key> keys = keys_of(Cache::size, random);
    Cache cache;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(cache.find(keys[i]), nullptr) << i;
      cache.keep(keys[i], static_cast<unsigned>(i));
    }
    ASSERT_EQ(found(cache, keys), keys.size());
  }
}

TEST(LaunchCache, ANewKeyDisplacesOneOfAFullCache) {
  std::mt19937_64 random(1);
  const std::vector<Key> keys = keys_of(3 * Cache::size, random);
  Cache cache;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    cache.keep(keys[i], static_cast<unsigned>(i));
    const unsigned* value = cache.find(keys[i]);
    ASSERT_TRUE(value != nullptr && *value == i) << i;
  }
  EXPECT_EQ(found(cache, keys), Cache::size);
}

TEST(LaunchCache, AKeyHasOneValue) {
  std::mt19937_64 random(1);
  const std::vector<Key> keys = keys_of(Cache::size, random);
  Cache cache;
  for (unsigned round = 0; round < 3; ++round) {
    for (const Key& each : keys) cache.keep(each, round);
    for (const Key& each : keys) {
      const unsigned* value = cache.find(each);
      ASSERT_TRUE(value != nullptr && *value == round);
    }
  }
}

}  // namespace
