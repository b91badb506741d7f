// Many threads on one cache: every slot holds what its key says, and nobody fills a key twice.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/slot_cache.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

constexpr std::size_t keys = 12;

// Every key has its own size and contents.
std::size_t size_of_key(CacheKey key, std::size_t largest) { return 16 * (1 + key % largest); }

class Worker {
 public:
  Worker(SlotCache& cache, unsigned seed, std::size_t largest,
         std::array<std::atomic<int>, keys>& filling)
      : cache_(cache), random_(seed), largest_(largest), filling_(filling) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      const CacheKey key = random_() % keys;
      auto slot = cache_.acquire(key, size_of_key(key, largest_));
      if (!slot.hit() && !fill(slot)) continue;
      try {
        read(slot);
      } catch (const std::domain_error&) {
        ++failed_reads;  // the thread that had to fill the slot failed
      }
    }
    stream_.synchronize();  // throws what a reader found wrong
  }

  int failed_reads = 0;

 private:
  bool fill(SlotCache::Slot& slot) {
    const CacheKey key = slot.key();
    EXPECT_EQ(filling_[key].fetch_add(1), 0) << "key " << key << " is filled twice";
    const auto write = [data = slot.view(), value = static_cast<int>(key)] {
      std::memset(data.data, value, data.bytes);
    };
    switch (random_() % 8) {
      case 0:
        --filling_[key];
        slot.fail(std::make_exception_ptr(std::domain_error("fill")));
        return false;
      case 1:
        stream_.call(write);
        --filling_[key];
        slot.fail_after(stream_, std::make_exception_ptr(std::domain_error("fill")));
        return false;
      case 2:
      case 3:
        write();
        --filling_[key];
        slot.filled();
        return true;
      default:
        stream_.call(write);
        --filling_[key];
        slot.filled(stream_);
        return true;
    }
  }

  void read(SlotCache::Slot& slot) {
    const auto check = [data = slot.view(), key = slot.key()] {
      for (std::size_t i = 0; i < data.bytes; ++i) {
        if (data.data[i] != static_cast<std::byte>(key)) {
          throw std::runtime_error("wrong contents for key " + std::to_string(key));
        }
      }
    };
    if (random_() % 3 == 0) {
      slot.wait();
      check();
      slot.release();
    } else {
      slot.join(stream_);
      stream_.call(check);
      slot.release_after(stream_);
    }
  }

  SlotCache& cache_;
  std::mt19937 random_;
  std::size_t largest_;
  std::array<std::atomic<int>, keys>& filling_;
  Stream stream_{Device::cpu()};
};

void run_threads(std::size_t largest, std::size_t capacity, WhenExhausted when_exhausted) {
  Watchdog watchdog("SlotCacheThreads", std::chrono::seconds(240));
  std::vector<std::byte> memory(capacity);
  std::array<std::atomic<int>, keys> filling{};
  SlotCache cache(Device::cpu(), {memory.data(), memory.size(), {}},
                  {.granularity = 16, .when_exhausted = when_exhausted});
  constexpr int threads = 4, steps = 400;
  std::vector<std::jthread> running;
  for (unsigned t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      Worker worker(cache, t + 1, largest, filling);
      EXPECT_NO_THROW(worker.run(steps));
    });
  }
  running.clear();
  const SlotCacheStatistics statistics = cache.statistics();
  EXPECT_EQ(statistics.hits + statistics.misses, std::uint64_t{threads} * steps);
  EXPECT_GT(statistics.evictions, 0U);
  // Nothing was lost: the whole memory can be had as one slot.
  auto all = cache.acquire(1000, capacity);
  all.filled();
}

TEST(SlotCacheThreads, SlotsOfOneSize) { run_threads(1, 16 * 5, WhenExhausted::wait); }
TEST(SlotCacheThreads, SlotsOfManySizes) { run_threads(4, 16 * 16, WhenExhausted::wait); }

}  // namespace
}  // namespace ps::test
