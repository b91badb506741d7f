// The keyed slot cache on the CPU: hits, fills, pins, evictions, and every misuse.
#include "penstock/host/slot_cache.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "support/stepped_stream.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

using namespace std::chrono_literals;

class SlotCaches : public testing::Test {
 protected:
  static constexpr std::size_t slot = 64;

  MemoryView memory(std::size_t bytes) {
    bytes_.assign(bytes, std::byte{0});
    return {bytes_.data(), bytes, {}};
  }
  SlotCacheOptions options(std::size_t granularity = slot) const {
    return {.granularity = granularity, .when_exhausted = WhenExhausted::fail};
  }
  // Acquires a key that is not cached, fills it and lets it go.
  static std::size_t put(SlotCache& cache, CacheKey key, std::size_t bytes = slot) {
    auto handle = cache.acquire(key, bytes);
    EXPECT_FALSE(handle.hit()) << "key " << key;
    handle.filled();
    return handle.index();
  }
  static bool has(const SlotCache& cache, CacheKey key) { return cache.find(key).has_value(); }

  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
  Device cpu = Device::cpu();
  std::vector<std::byte> bytes_;
};

// Looks how much memory is allocated when the cache asks what to evict.
class MeasuringPolicy final : public CachePolicy {
 public:
  explicit MeasuringPolicy(std::size_t& heap) : heap_(heap) {}
  void added(CacheKey key) override { lru_->added(key); }
  void used(CacheKey key) override { lru_->used(key); }
  void removed(CacheKey key) noexcept override { lru_->removed(key); }
  void victims(const std::function<bool(CacheKey)>& visit) const override {
    heap_ = mallinfo2().uordblks;
    lru_->victims(visit);
  }

 private:
  const std::unique_ptr<CachePolicy> lru_ = lru_policy();
  std::size_t& heap_;
};

// (Sanitizers do not count.)
TEST_F(SlotCaches, AMissCopiesNoListOfTheCachedSlots) {
  constexpr std::size_t slots = 4000;
  std::size_t heap = 0;
  SlotCacheOptions measured = options();
  measured.policy = std::make_unique<MeasuringPolicy>(heap);
  SlotCache cache(cpu, memory(slots * slot), std::move(measured));
  for (CacheKey key = 0; key < slots; ++key) put(cache, key);
  const std::size_t before = mallinfo2().uordblks;
  put(cache, slots);
  EXPECT_LE(heap, before + slots) << "bytes";
  EXPECT_FALSE(has(cache, 0));
}

TEST_F(SlotCaches, AMissIsFilledOnceAndHitAfterwards) {
  const MemoryView whole = memory(4 * slot);
  SlotCache cache(cpu, whole, options());
  {
    auto handle = cache.acquire(7, slot);
    EXPECT_FALSE(handle.hit());
    EXPECT_EQ(handle.key(), 7U);
    EXPECT_EQ(handle.view().bytes, slot);
    EXPECT_EQ(handle.view().data, whole.data + handle.index() * slot);
    EXPECT_FALSE(handle.ready());
    handle.view().data[0] = std::byte{42};
    handle.filled();
    EXPECT_TRUE(handle.ready());
  }
  auto again = cache.acquire(7, slot);
  EXPECT_TRUE(again.hit());
  EXPECT_TRUE(again.ready());
  again.wait();
  EXPECT_EQ(again.view().data[0], std::byte{42});
  const SlotCacheStatistics statistics = cache.statistics();
  EXPECT_EQ(statistics.hits, 1U);
  EXPECT_EQ(statistics.misses, 1U);
  EXPECT_EQ(statistics.missed_bytes, slot);
  EXPECT_EQ(statistics.keys, 1U);
  EXPECT_EQ(statistics.bytes, slot);
  EXPECT_EQ(statistics.capacity, 4 * slot);
}

TEST_F(SlotCaches, SlotsOfOneSizeHaveDenseNumbersAndNeverFragment) {
  // The last bytes are not enough for a slot.
  SlotCache cache(cpu, memory(5 * slot + 63), options());
  std::vector<bool> seen(5);
  for (CacheKey key = 0; key < 5; ++key) seen.at(put(cache, key)) = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 5);
  for (CacheKey key = 5; key < 200; ++key) {
    const auto evicted = cache.find(key - 5);
    ASSERT_TRUE(evicted.has_value());
    EXPECT_EQ(put(cache, key), evicted->index) << "the slot of the key used longest ago";
  }
  EXPECT_EQ(cache.statistics().bytes, 5 * slot);
  EXPECT_EQ(cache.statistics().evictions, 195U);
}

TEST_F(SlotCaches, AHeldSlotIsNotEvicted) {
  SlotCache cache(cpu, memory(2 * slot), options());
  auto held = cache.acquire(1, slot);
  held.filled();
  put(cache, 2);
  put(cache, 3);
  EXPECT_TRUE(has(cache, 1));
  EXPECT_FALSE(has(cache, 2));
  auto other = cache.acquire(3, slot);
  EXPECT_THROW(cache.acquire(4, slot), Exhausted);
  EXPECT_FALSE(cache.try_acquire(4, slot).has_value());
  EXPECT_FALSE(cache.try_acquire(4, slot, 1ms).has_value());
  EXPECT_EQ(cache.statistics().exhausted, 3U);
  held.release();
  EXPECT_EQ(put(cache, 4), 0U);
  EXPECT_FALSE(has(cache, 1));
}

TEST_F(SlotCaches, ASlotStaysUntilItsLastReaderIsDone) {
  SlotCache cache(cpu, memory(slot), options());
  put(cache, 1);
  SteppedStream first, second;
  first.enqueue();
  second.enqueue();
  cache.acquire(1, slot).release_after(first.stream());
  cache.acquire(1, slot).release_after(second.stream());
  first.mark();
  second.mark();
  EXPECT_THROW(cache.acquire(2, slot), Exhausted);
  second.complete_next();
  EXPECT_THROW(cache.acquire(2, slot), Exhausted);
  first.complete_next();
  put(cache, 2);
}

TEST_F(SlotCaches, SlotsComeBackInOrderOfCompletion) {
  SlotCache cache(cpu, memory(3 * slot), options());
  for (const CacheKey key : {1, 2, 3}) put(cache, key);
  std::array<SteppedStream, 3> streams;
  std::array<std::size_t, 3> index{};
  for (std::size_t i = 0; i < 3; ++i) {
    auto handle = cache.acquire(i + 1, slot);
    index[i] = handle.index();
    streams[i].enqueue();
    handle.release_after(streams[i].stream());
    streams[i].mark();
  }
  std::vector<SlotCache::Slot> held;
  for (const std::size_t i : {2, 0, 1}) {
    EXPECT_THROW(cache.acquire(10 + i, slot), Exhausted);
    streams[i].complete_next();
    EXPECT_EQ(put(cache, 10 + i), index[i]);
    held.push_back(cache.acquire(10 + i, slot));
  }
}

TEST_F(SlotCaches, ASlotWhoseFillIsInFlightIsNotEvicted) {
  SlotCache cache(cpu, memory(slot), options());
  SteppedStream filling;
  filling.enqueue();
  {
    auto handle = cache.acquire(1, slot);
    handle.filled(filling.stream());
    filling.mark();
    EXPECT_FALSE(handle.ready());
  }
  EXPECT_THROW(cache.acquire(2, slot), Exhausted);
  filling.complete_next();
  EXPECT_TRUE(cache.acquire(1, slot).ready());
  put(cache, 2);
}

TEST_F(SlotCaches, AnEventOfTheCallerEndsAFill) {
  SlotCache cache(cpu, memory(slot), options());
  SteppedStream filling;
  filling.enqueue();
  const Event event(cpu);
  filling.stream().record(event);
  filling.mark();
  {
    auto handle = cache.acquire(1, slot);
    handle.filled(event);
    EXPECT_FALSE(handle.ready());
  }
  EXPECT_THROW(cache.acquire(2, slot), Exhausted);
  filling.complete_next();
  put(cache, 2);
}

TEST_F(SlotCaches, AStreamThatJoinsWaitsForTheFill) {
  SlotCache cache(cpu, memory(slot), options());
  SteppedStream filling;
  const Stream reader(cpu);
  auto writer = cache.acquire(1, slot);
  auto handle = cache.acquire(1, slot);
  EXPECT_TRUE(handle.hit());
  EXPECT_FALSE(handle.ready());
  EXPECT_EQ(cache.statistics().shared_fills, 1U);
  filling.enqueue();
  filling.stream().call([data = writer.view().data] { *data = std::byte{5}; });
  writer.filled(filling.stream());
  handle.join(reader);
  std::byte seen{0};
  reader.call([&, data = handle.view().data] { seen = *data; });
  EXPECT_FALSE(reader.done());
  filling.complete_all();
  reader.synchronize();
  EXPECT_EQ(seen, std::byte{5});
}

TEST_F(SlotCaches, ThreadsThatWaitForAFillGetIt) {
  SlotCache cache(cpu, memory(slot), options());
  auto writer = cache.acquire(1, slot);
  std::vector<std::future<std::byte>> readers;
  for (int i = 0; i < 4; ++i) {
    readers.push_back(std::async(std::launch::async, [&] {
      auto handle = cache.acquire(1, slot);
      EXPECT_TRUE(handle.hit());
      handle.wait();
      return handle.view().data[slot - 1];
    }));
  }
  while (cache.statistics().shared_fills < 4) std::this_thread::yield();
  writer.view().data[slot - 1] = std::byte{9};
  writer.filled();
  for (auto& reader : readers) EXPECT_EQ(reader.get(), std::byte{9});
  EXPECT_EQ(cache.statistics().misses, 1U);
}

TEST_F(SlotCaches, AFailedFillRemovesTheKeyAndTellsThoseWhoWait) {
  SlotCache cache(cpu, memory(slot), options());
  auto writer = cache.acquire(1, slot);
  auto reader = cache.acquire(1, slot);
  auto waiting = std::async(std::launch::async, [&] { reader.wait(); });
  writer.fail(std::make_exception_ptr(std::domain_error("disk")));
  EXPECT_THROW(waiting.get(), std::domain_error);
  EXPECT_THROW(reader.join(Stream(cpu)), std::domain_error);
  EXPECT_THROW((void)reader.ready(), std::domain_error);
  EXPECT_FALSE(has(cache, 1));
  EXPECT_EQ(cache.statistics().failed_fills, 1U);
  EXPECT_EQ(cache.statistics().bytes, slot) << "the reader still holds the bytes";
  EXPECT_THROW(cache.acquire(1, slot), Exhausted);
  reader.release();
  EXPECT_EQ(cache.statistics().bytes, 0U);
  put(cache, 1);
}

TEST_F(SlotCaches, ADroppedHandleThatHadToFillCountsAsAFailedFill) {
  SlotCache cache(cpu, memory(slot), options());
  std::optional<SlotCache::Slot> writer = cache.acquire(1, slot);
  auto reader = cache.acquire(1, slot);
  writer.reset();
  try {
    reader.wait();
    FAIL() << "no error";
  } catch (const FillAbandoned& error) {
    EXPECT_NE(std::string(error.what()).find("key 1"), std::string::npos) << error.what();
  }
  reader.release();
  put(cache, 2);
}

TEST_F(SlotCaches, BytesOfAFailedFillStayAwayWhileWorkMayWriteToThem) {
  SlotCache cache(cpu, memory(slot), options());
  SteppedStream filling;
  filling.enqueue();
  auto writer = cache.acquire(1, slot);
  writer.fail_after(filling.stream(), std::make_exception_ptr(std::domain_error("disk")));
  filling.mark();
  EXPECT_FALSE(has(cache, 1));
  EXPECT_THROW(cache.acquire(1, slot), Exhausted);
  filling.complete_next();
  put(cache, 1);
}

TEST_F(SlotCaches, AcquireWaitsForRoom) {
  SlotCache cache(cpu, memory(slot), {.granularity = slot});
  put(cache, 1);
  SteppedStream reading;
  reading.enqueue();
  cache.acquire(1, slot).release_after(reading.stream());
  auto waiting = std::async(std::launch::async, [&] { return put(cache, 2); });
  while (cache.statistics().exhausted == 0) std::this_thread::yield();
  EXPECT_EQ(waiting.wait_for(2ms), std::future_status::timeout);
  reading.complete_all();
  EXPECT_EQ(waiting.get(), 0U);
  // A handle that is released wakes it as well.
  std::optional<SlotCache::Slot> held = cache.acquire(2, slot);
  waiting = std::async(std::launch::async, [&] { return put(cache, 3); });
  while (cache.statistics().exhausted == 1) std::this_thread::yield();
  held.reset();
  EXPECT_EQ(waiting.get(), 0U);
}

TEST_F(SlotCaches, ThoseWhoWaitAreServedInOrderAndShareFills) {
  SlotCache cache(cpu, memory(slot), {.granularity = slot});
  std::optional<SlotCache::Slot> held = cache.acquire(1, slot);
  held->filled();
  std::vector<std::future<bool>> waiting;
  std::vector<CacheKey> filled;  // only whoever fills the one slot touches it
  for (const CacheKey key : {2, 3, 2}) {
    const std::uint64_t before = cache.statistics().exhausted;
    waiting.push_back(std::async(std::launch::async, [&, key] {
      auto handle = cache.acquire(key, slot);
      if (!handle.hit()) {
        filled.push_back(key);
        handle.filled();
      }
      handle.wait();
      return handle.hit();
    }));
    while (cache.statistics().exhausted == before) std::this_thread::yield();
  }
  held.reset();
  EXPECT_FALSE(waiting[0].get());
  EXPECT_FALSE(waiting[1].get());
  EXPECT_TRUE(waiting[2].get()) << "served together with the first, which fills the same key";
  EXPECT_EQ(filled, (std::vector<CacheKey>{2, 3}));
}

TEST_F(SlotCaches, PinnedKeysAreNeverEvicted) {
  SlotCacheOptions pinned = options();
  pinned.policy = pinned_policy({1, 2}, lru_policy());
  SlotCache cache(cpu, memory(3 * slot), std::move(pinned));
  for (const CacheKey key : {1, 2, 3, 4, 5}) put(cache, key);
  EXPECT_TRUE(has(cache, 1) && has(cache, 2) && has(cache, 5));
  EXPECT_FALSE(has(cache, 3) || has(cache, 4));
}

TEST_F(SlotCaches, AWaitThatPinnedKeysMakeHopelessFails) {
  SlotCacheOptions pinned{.granularity = slot, .policy = pinned_policy({1, 2}, lru_policy())};
  SlotCache cache(cpu, memory(3 * slot), std::move(pinned));
  put(cache, 1);
  auto held = cache.acquire(3, slot);
  held.filled();
  auto waiting = std::async(std::launch::async, [&] { (void)cache.acquire(4, 2 * slot); });
  while (cache.statistics().exhausted == 0) std::this_thread::yield();
  // Two slots side by side are possible until key 2 takes the one at the end.
  put(cache, 2);
  EXPECT_THROW(waiting.get(), Exhausted);
  EXPECT_FALSE(cache.try_acquire(4, 2 * slot, 1h).has_value()) << "does not wait in vain";
  try {
    (void)cache.acquire(4, 2 * slot);
    FAIL() << "no error";
  } catch (const Exhausted& error) {
    EXPECT_STREQ(error.what(),
                 "no room for 128 bytes in a cache of 192: 64 bytes are held by handles, 0 are "
                 "used by work in flight, and 128 are kept by the policy");
  }
}

TEST_F(SlotCaches, VariableSizesEvictNoMoreThanTheyNeed) {
  SlotCache cache(cpu, memory(10), options(1));
  put(cache, 1, 3);  // 0-3
  put(cache, 2, 2);  // 3-5
  put(cache, 3, 4);  // 5-9, and one free byte
  EXPECT_EQ(cache.statistics().bytes, 9U);
  (void)cache.acquire_cached(1);
  // In order of use: 2, 3, 1. Key 2 alone is too small; 2 and 3 make a range of 7.
  EXPECT_EQ(put(cache, 4, 6), 3U);
  EXPECT_TRUE(has(cache, 1));
  EXPECT_FALSE(has(cache, 2) || has(cache, 3));
  EXPECT_EQ(put(cache, 5, 1), 9U);
  // Keys 1, 4, 5 by last use: 1 makes room for three bytes, so nothing else goes.
  EXPECT_EQ(put(cache, 6, 2), 0U);
  EXPECT_TRUE(has(cache, 4) && has(cache, 5));
}

TEST_F(SlotCaches, AVictimThatTurnsOutNotToHelpStays) {
  SlotCache cache(cpu, memory(10), options(1));
  put(cache, 1, 3);  // 0-3
  auto held = cache.acquire(2, 2);
  held.filled();
  put(cache, 3, 5);  // 5-10
  EXPECT_EQ(put(cache, 4, 5), 5U);
  EXPECT_TRUE(has(cache, 1)) << "used longest ago, but too small";
  EXPECT_FALSE(has(cache, 3));
}

TEST_F(SlotCaches, TheWholeBudgetCanBeUsedAndNotOneByteMore) {
  SlotCache cache(cpu, memory(1000), options(1));
  put(cache, 1, 1000);
  EXPECT_EQ(cache.statistics().bytes, 1000U);
  EXPECT_THROW(cache.acquire(2, 1001), InvalidArgument);
  std::size_t sum = 0;
  std::vector<SlotCache::Slot> held;
  for (CacheKey key = 10; sum < 1000; ++key) {
    const std::size_t bytes = std::min<std::size_t>(1000 - sum, 1 + key * 37 % 101);
    held.push_back(cache.acquire(key, bytes));
    held.back().filled();
    sum += bytes;
  }
  EXPECT_EQ(cache.statistics().bytes, 1000U);
  EXPECT_THROW(cache.acquire(2, 1), Exhausted);
}

TEST_F(SlotCaches, FragmentsBetweenHeldSlotsAreWaitedForAndThenMerged) {
  SlotCache cache(cpu, memory(6), options(1));
  std::vector<SlotCache::Slot> held;
  for (CacheKey key = 0; key < 3; ++key) {
    held.push_back(cache.acquire(key, 2));
    held.back().filled();
  }
  held[0].release();
  held[2].release();
  EXPECT_THROW(cache.acquire(9, 4), Exhausted) << "the free bytes are not side by side";
  EXPECT_TRUE(has(cache, 0) && has(cache, 2)) << "nothing is evicted in vain";
  held[1].release();
  EXPECT_EQ(put(cache, 9, 4), 0U);
  EXPECT_TRUE(has(cache, 2));
}

TEST_F(SlotCaches, ACachedKeyCanBeAcquiredWithoutAMiss) {
  SlotCache cache(cpu, memory(slot), options());
  EXPECT_FALSE(cache.acquire_cached(1).has_value());
  put(cache, 1);
  EXPECT_TRUE(cache.acquire_cached(1).value().hit());
  EXPECT_EQ(cache.statistics().misses, 1U);
  EXPECT_EQ(cache.statistics().hits, 1U);
}

TEST_F(SlotCaches, ALookupIsNotAUse) {
  SlotCache cache(cpu, memory(2 * slot), options());
  put(cache, 1);
  put(cache, 2);
  const auto found = cache.find(1);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->index, 0U);
  EXPECT_EQ(found->bytes, slot);
  EXPECT_TRUE(found->filled);
  put(cache, 3);
  EXPECT_FALSE(has(cache, 1)) << "looking it up did not make it recent";
  auto pending = cache.acquire(4, slot);
  EXPECT_FALSE(cache.find(4)->filled);
  EXPECT_EQ(cache.statistics().hits, 0U);
}

TEST_F(SlotCaches, HandlesMoveAndMayOutliveTheCache) {
  const Stream stream(cpu);
  std::optional<SlotCache::Slot> kept;
  {
    SlotCache cache(cpu, memory(2 * slot), options());
    auto first = cache.acquire(1, slot);
    auto second = cache.acquire(2, slot);
    first = std::move(second);  // they change places
    EXPECT_EQ(first.key(), 2U);
    EXPECT_EQ(second.key(), 1U);  // NOLINT: defined to be the other one
    first.filled();
    second.filled();
    kept = std::move(first);
    EXPECT_THROW((void)first.key(), InvalidArgument);  // NOLINT: a handle without a slot says so
  }
  kept->view().data[0] = std::byte{1};
  kept->release_after(stream);
  stream.synchronize();
}

TEST_F(SlotCaches, TheDestructorWaitsForReaders) {
  const Stream stream(cpu);
  std::atomic<bool> read{false};
  {
    SlotCache cache(cpu, memory(slot), options());
    put(cache, 1);
    auto handle = cache.acquire(1, slot);
    stream.call([&] {
      std::this_thread::sleep_for(20ms);
      read = true;
    });
    handle.release_after(stream);
  }
  EXPECT_TRUE(read);
}

// A host function in a stream may itself report a fill, whoever waits for that stream.
TEST_F(SlotCaches, WorkInAStreamMayUseTheCache) {
  const Stream stream(cpu);
  SlotCache cache(cpu, memory(2 * slot), {.granularity = slot});
  put(cache, 1);
  auto reader = cache.acquire(1, slot);
  auto writer = std::make_shared<SlotCache::Slot>(cache.acquire(2, slot));
  stream.call([writer] {
    std::this_thread::sleep_for(5ms);
    writer->filled();
    writer->release();
  });
  reader.release_after(stream);
  auto third = cache.acquire(3, slot);
  third.filled();
}

TEST_F(SlotCaches, NothingIsAllocatedOnceItRuns) {
  const Stream stream(cpu);
  SlotCache cache(cpu, memory(2 * slot), {.granularity = slot});
  std::uint64_t warm = 0;
  for (CacheKey i = 0; i < 500; ++i) {
    if (i == 100) warm = cpu.allocations();
    auto handle = cache.acquire(i % 3, slot);
    if (!handle.hit()) handle.filled(stream);
    handle.join(stream);
    handle.release_after(stream);
    if (i % 8 == 0) stream.synchronize();
  }
  EXPECT_LE(cpu.allocations(), warm + 8) << "as many events as are in flight at once";
}

TEST_F(SlotCaches, HitsAloneDoNotPileUp) {
  SlotCache cache(cpu, memory(slot), options());
  put(cache, 1);
  const std::uint64_t before = cpu.allocations();
  for (int i = 0; i < 2000; ++i) {
    const Stream stream(cpu);  // one allocation
    cache.acquire(1, slot).release_after(stream);
    stream.synchronize();
  }
  EXPECT_LE(cpu.allocations(), before + 2000 + 100) << "as many events as are in flight at once";
}

TEST_F(SlotCaches, RefusesNonsense) {
  EXPECT_THROW(SlotCache(cpu, {}, options()), InvalidArgument);
  EXPECT_THROW(SlotCache(cpu, memory(slot), options(0)), InvalidArgument);
  EXPECT_THROW(SlotCache(cpu, memory(slot), options(slot + 1)), InvalidArgument);
  MemoryView elsewhere = memory(slot);
  elsewhere.place = {Memory::device, 3};
  EXPECT_THROW(SlotCache(cpu, elsewhere, options()), InvalidArgument);

  SlotCache cache(cpu, memory(2 * slot), options());
  EXPECT_THROW(cache.acquire(1, 0), InvalidArgument);
  EXPECT_THROW(cache.acquire(1, 2 * slot + 1), InvalidArgument);
  EXPECT_THROW(cache.try_acquire(1, ~std::size_t{0}), InvalidArgument);
  put(cache, 1);
  EXPECT_THROW(cache.acquire(1, slot - 1), InvalidArgument) << "another size than the cached one";
  EXPECT_EQ(cache.statistics().misses, 1U);
}

TEST_F(SlotCaches, RefusesMisuseOfAHandle) {
  const Stream stream(cpu);
  const auto error = std::make_exception_ptr(std::domain_error("disk"));
  SlotCache cache(cpu, memory(2 * slot), options());
  auto writer = cache.acquire(1, slot);
  EXPECT_THROW(writer.join(stream), InvalidArgument) << "would wait for itself";
  EXPECT_THROW(writer.wait(), InvalidArgument);
  EXPECT_THROW(writer.release_after(stream), InvalidArgument);
  EXPECT_THROW(writer.fail(nullptr), InvalidArgument);
  EXPECT_THROW(writer.fail_after(stream, nullptr), InvalidArgument);
  auto reader = cache.acquire(1, slot);
  EXPECT_THROW(reader.filled(), InvalidArgument);
  EXPECT_THROW(reader.filled(stream), InvalidArgument);
  EXPECT_THROW(reader.filled(Event(cpu)), InvalidArgument);
  EXPECT_THROW(reader.fail(error), InvalidArgument);
  EXPECT_THROW(reader.fail_after(stream, error), InvalidArgument);
  writer.filled();
  EXPECT_THROW(writer.filled(), InvalidArgument) << "twice";
  EXPECT_THROW(writer.fail(error), InvalidArgument);
  writer.release();
  writer.release();
  EXPECT_THROW((void)writer.key(), InvalidArgument);
  EXPECT_THROW((void)writer.view(), InvalidArgument);
  EXPECT_THROW((void)writer.index(), InvalidArgument);
  EXPECT_THROW((void)writer.ready(), InvalidArgument);
  EXPECT_THROW(writer.join(stream), InvalidArgument);
  EXPECT_THROW(writer.wait(), InvalidArgument);
  EXPECT_THROW(writer.filled(), InvalidArgument);
  EXPECT_THROW(writer.release_after(stream), InvalidArgument);
  reader.release();
  EXPECT_EQ(cache.statistics().failed_fills, 0U);
  put(cache, 2);
}

// A policy that fails must not cost a slot.
class FailingPolicy final : public CachePolicy {
 public:
  explicit FailingPolicy(bool& fails) : fails_(fails) {}
  void added(CacheKey key) override {
    fail();
    lru_->added(key);
  }
  void used(CacheKey key) override {
    fail();
    lru_->used(key);
  }
  void removed(CacheKey key) noexcept override { lru_->removed(key); }
  void victims(const std::function<bool(CacheKey)>& visit) const override { lru_->victims(visit); }

 private:
  void fail() const {
    if (fails_) throw std::domain_error("policy");
  }
  bool& fails_;
  std::unique_ptr<CachePolicy> lru_ = lru_policy();
};

TEST_F(SlotCaches, APolicyThatThrowsCostsNoSlot) {
  bool fails = false;
  SlotCacheOptions failing = options();
  failing.policy = std::make_unique<FailingPolicy>(fails);
  SlotCache cache(cpu, memory(2 * slot), std::move(failing));
  put(cache, 1);
  fails = true;
  EXPECT_THROW(cache.acquire(1, slot), std::domain_error);
  EXPECT_THROW(cache.acquire(2, slot), std::domain_error);
  fails = false;
  EXPECT_EQ(cache.statistics().keys, 1U);
  EXPECT_EQ(cache.statistics().bytes, slot);
  put(cache, 2);
  put(cache, 3);
  EXPECT_EQ(cache.statistics().bytes, 2 * slot);
}

}  // namespace
}  // namespace ps::test
