// The slot cache on the fake driver, which finds every access that nothing orders.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/slot_cache.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

// Experts by key.
struct FakeExperts {
  static constexpr std::size_t bytes = 64;
  static constexpr std::size_t keys = 8;

  // One expert per key in page-locked memory, with contents of its own.
  static void write_source(const PinnedBuffer& source) {
    for (std::size_t key = 0; key < keys; ++key) {
      std::memset(source.view().data + key * bytes, static_cast<int>(key + 1), bytes);
    }
  }
  static SlotCacheOptions options(WhenExhausted when_exhausted = WhenExhausted::wait) {
    return {.granularity = bytes, .when_exhausted = when_exhausted};
  }
  // Loads a key if need be, and has a kernel check its contents.
  void use(FakeDriver& driver, SlotCache& cache, const PinnedBuffer& source, CacheKey key,
           const Stream& loading, const Stream& computing) {
    auto slot = cache.acquire(key, bytes);
    if (!slot.hit()) {
      try {
        copy(slot.view(), source.view().sub(key * bytes, bytes), loading);
        slot.filled(loading);
      } catch (...) {
        slot.fail_after(loading, std::current_exception());
        throw;
      }
    }
    slot.join(computing);
    launch(driver, computing, {{slot.view().data, bytes}}, {}, [view = slot.view(), key, this] {
      if (view.data[bytes - 1] != static_cast<std::byte>(key + 1)) ++wrong;
    });
    slot.release_after(computing);
  }

  std::atomic<int> wrong{0};
};

class CudaSlotCache : public testing::Test, protected FakeExperts {
 protected:
  void use(SlotCache& cache, const PinnedBuffer& source, CacheKey key, const Stream& loading,
           const Stream& computing) {
    FakeExperts::use(driver, cache, source, key, loading, computing);
  }

  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
  FakeMachine machine{{.devices = 2}};
  FakeDriver& driver = machine.driver();
  Device gpu = machine.gpu();
};

TEST_F(CudaSlotCache, LoadsAndReadersAreOrdered) {
  {
    const PinnedBuffer source(gpu, keys * bytes);
    write_source(source);
    const DeviceBuffer memory(gpu, 3 * bytes);
    const Stream loading(gpu), first(gpu), second(gpu);
    SlotCache cache(gpu, memory.view(), options());
    std::mt19937 random(3);
    for (int i = 0; i < 300; ++i) {
      use(cache, source, random() % keys, loading, i % 2 == 0 ? first : second);
    }
    EXPECT_GT(cache.statistics().evictions, 50U);
    EXPECT_GT(cache.statistics().hits, 50U);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(CudaSlotCache, ThreadsShareLoads) {
  {
    const PinnedBuffer source(gpu, keys * bytes);
    write_source(source);
    const DeviceBuffer memory(gpu, 5 * bytes);
    SlotCache cache(gpu, memory.view(), options());
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const Stream loading(gpu), computing(gpu);
        std::mt19937 random(t + 1);
        for (int i = 0; i < 60; ++i) use(cache, source, random() % keys, loading, computing);
        computing.synchronize();
        loading.synchronize();
      });
    }
    threads.clear();
    EXPECT_EQ(cache.statistics().hits + cache.statistics().misses, 240U);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(CudaSlotCache, HitsOnBorrowedStreamsDoNotPileUp) {
  {
    const DeviceBuffer memory(gpu, bytes);
    const cuda::StreamHandle native = driver.foreign_stream();
    SlotCache cache(gpu, memory.view(), options());
    cache.acquire(1, bytes).filled();
    for (int i = 0; i < 1000; ++i) {
      const Stream borrowed = borrow_native(gpu, native);
      fill(memory.view(), 1, borrowed);
      cache.acquire(1, bytes).release_after(borrowed);
      if (i % 50 == 0) borrowed.synchronize();
      ASSERT_LE(driver.outstanding().events, 300U);
    }
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(CudaSlotCache, SlotsComeBackInOrderOfCompletion) {
  {
    const DeviceBuffer memory(gpu, 2 * bytes);
    const Stream slow(gpu), fast(gpu);
    SlotCache cache(gpu, memory.view(), options());
    std::promise<void> go;
    launch(driver, slow, {}, {}, [gone = go.get_future().share()] { gone.wait(); });
    auto first = cache.acquire(1, bytes), second = cache.acquire(2, bytes);
    first.filled();
    second.filled();
    const std::size_t index = second.index();
    first.release_after(slow);
    second.release_after(fast);
    auto third = cache.acquire(3, bytes);
    EXPECT_EQ(third.index(), index) << "the stream of the second slot was done long ago";
    go.set_value();
  }
  EXPECT_TRUE(is_clean(driver));
}

// Whatever fails: the error arrives, no slot is lost, none is handed out while it is in use.
TEST_F(CudaSlotCache, AnyCallFails) {
  {
    const PinnedBuffer source(gpu, keys * bytes);
    write_source(source);
    const DeviceBuffer memory(gpu, 2 * bytes);
    const Stream loading(gpu), computing(gpu);
    bool struck = true;
    for (std::uint64_t n = 1; struck; ++n) {
      watchdog.step("call " + std::to_string(n));
      SlotCache cache(gpu, memory.view(), options());
      driver.fail_call(n, unknown_error);
      for (CacheKey key = 0; key < 5; ++key) {
        try {
          use(cache, source, key, loading, computing);
        } catch (const DeviceError& error) {
          EXPECT_EQ(error.code(), unknown_error) << "n = " << n;
        }
      }
      struck = driver.fault_struck();
      driver.disarm();
      // An error that is left is reported once; then the cache works as before.
      for (int attempt = 0; attempt < 2; ++attempt) {
        try {
          auto first = cache.acquire(100, bytes), second = cache.acquire(101, bytes);
          for (auto* slot : {&first, &second}) {
            fill(slot->view(), 1, loading);
            slot->filled(loading);
          }
          break;
        } catch (const DeviceError& error) {
          EXPECT_EQ(error.code(), unknown_error);
          EXPECT_EQ(attempt, 0) << "n = " << n;
        }
      }
      EXPECT_EQ(cache.statistics().bytes, 2 * bytes) << "n = " << n;
      loading.synchronize();
      computing.synchronize();
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(CudaSlotCache, AFillThatFailsOnTheDeviceRemovesItsKey) {
  {
    const DeviceBuffer memory(gpu, bytes);
    const Stream stream(gpu);
    SlotCache cache(gpu, memory.view(), options());
    std::promise<void> go;
    launch(driver, stream, {}, {}, [gone = go.get_future().share()] { gone.wait(); });
    driver.fail_work(1, illegal_address);
    auto writer = cache.acquire(1, bytes);
    fill(writer.view(), 1, stream);
    writer.filled(stream);
    auto reader = cache.acquire(1, bytes);
    writer.release();
    // Waits for room until the loss of the device ends the fill.
    auto waiting = std::async(std::launch::async, [&] { (void)cache.acquire(2, bytes); });
    go.set_value();
    EXPECT_THROW(waiting.get(), DeviceError);
    EXPECT_FALSE(cache.find(1).has_value());
    EXPECT_THROW(reader.wait(), DeviceError);
    EXPECT_EQ(cache.statistics().failed_fills, 1U);
    reader.release();
    EXPECT_EQ(cache.statistics().bytes, 0U);
  }
  EXPECT_TRUE(is_clean_after_loss(driver));
}

// While a thread that waits for room waits for the device, because work has failed, another one
// finds a slot for it. Then the first one fails after all, and nobody may be left to wait for it.
TEST_F(CudaSlotCache, ASlotForACallThatFailsIsReleased) {
  {
    const DeviceBuffer memory(gpu, 3 * bytes);
    const Stream first(gpu), second(gpu);
    SlotCache cache(gpu, memory.view(), options());
    std::promise<void> go;
    const auto gone = go.get_future().share();
    for (const CacheKey key : {1, 2}) {
      const Stream& stream = key == 1 ? first : second;
      launch(driver, stream, {}, {}, [gone] { gone.wait(); });
      auto slot = cache.acquire(key, bytes);
      slot.filled();
      slot.release_after(stream);
    }
    auto held = cache.acquire(3, bytes);
    held.filled();
    auto waiting = std::async(std::launch::async, [&] { (void)cache.acquire(4, bytes); });
    while (cache.statistics().exhausted == 0) std::this_thread::yield();  // it waits
    driver.fail_call(1, unknown_error, {"event_query"});
    while (!driver.fault_struck()) std::this_thread::yield();
    held.release();
    EXPECT_FALSE(cache.try_acquire(5, bytes)) << "the one that waits comes first";
    ASSERT_TRUE(cache.find(4)) << "it has a slot now";
    driver.fail_call(1, capture_unsupported, {"event_query"});
    go.set_value();
    EXPECT_THROW(waiting.get(), Unsupported);
    driver.disarm();
    EXPECT_FALSE(cache.find(4)) << "a slot that nobody fills";
    EXPECT_EQ(cache.statistics().failed_fills, 1U);
    EXPECT_THROW((void)cache.acquire(4, bytes), DeviceError) << "what had failed first";
    EXPECT_FALSE(cache.acquire(4, bytes).hit());
  }
  EXPECT_TRUE(is_clean(driver));
}

// The device is lost at one call after the other, or when its work runs. Every call of the cache
// ends, and what is reported is the loss.
class CudaSlotCacheFaults : public testing::Test, protected FakeExperts {
 protected:
  void survive_a_loss(const std::function<void(FakeDriver&, std::uint64_t)>& lose) {
    Watchdog watchdog("CudaSlotCacheFaults");
    bool struck = true;
    for (std::uint64_t n = 1; struck; ++n) {
      const std::string here = "fault at " + std::to_string(n);
      watchdog.step(here);
      FakeMachine machine({.seed = n, .max_delay_us = 10});
      FakeDriver& driver = machine.driver();
      struck = use_until_lost(machine, here, [&] { lose(driver, n); });
      EXPECT_EQ(wrong, 0) << here;
      ASSERT_TRUE(is_clean_after_loss(driver)) << here;
    }
  }

 private:
  // Whether the device was lost.
  bool use_until_lost(FakeMachine& machine, const std::string& here,
                      const std::function<void()>& lose) {
    const Device gpu = machine.gpu();
    const PinnedBuffer source(gpu, keys * bytes);
    write_source(source);
    const DeviceBuffer memory(gpu, 2 * bytes);
    const Stream loading(gpu), computing(gpu);
    SlotCache cache(gpu, memory.view(), options());
    lose();
    const auto fails = [&](CacheKey key) {
      try {
        use(machine.driver(), cache, source, key, loading, computing);
        return false;
      } catch (const DeviceError&) {
        return true;
      }
    };
    bool reported = false;
    for (CacheKey key = 0; key < 6; ++key) {
      const bool failed = fails(key);
      EXPECT_TRUE(failed || !reported) << here << ": a lost device works again";
      reported = reported || failed;
    }
    const bool struck = machine.driver().fault_struck();
    EXPECT_TRUE(struck || !reported) << here;
    if (struck) {
      EXPECT_THROW(computing.synchronize(), DeviceError) << here;
      EXPECT_TRUE(fails(7)) << here;
    }
    return struck;
  }
};

TEST_F(CudaSlotCacheFaults, TheDeviceIsLostAtAnyCall) {
  survive_a_loss([](FakeDriver& driver, std::uint64_t n) { driver.lose_device_at(n); });
}
TEST_F(CudaSlotCacheFaults, APieceOfWorkFails) {
  survive_a_loss([](FakeDriver& driver, std::uint64_t n) { driver.fail_work(n); });
}

TEST_F(CudaSlotCache, NeedsStreamsAndMemoryOfItsDevice) {
  {
    const DeviceBuffer memory(gpu, bytes), elsewhere(machine.gpu(1), bytes);
    EXPECT_THROW(SlotCache(gpu, elsewhere.view(), options()), InvalidArgument);
    const Stream foreign(machine.gpu(1));
    SlotCache cache(gpu, memory.view(), options());
    auto writer = cache.acquire(1, bytes);
    EXPECT_THROW(writer.filled(foreign), InvalidArgument);
    EXPECT_THROW(writer.filled(Event(machine.gpu(1))), InvalidArgument);
    EXPECT_THROW(writer.fail_after(foreign, std::make_exception_ptr(std::domain_error("disk"))),
                 InvalidArgument);
    writer.filled();
    EXPECT_THROW(writer.join(foreign), InvalidArgument);
    EXPECT_THROW(writer.release_after(foreign), InvalidArgument);
    EXPECT_EQ(writer.key(), 1U) << "still held";
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(CudaSlotCache, StreamsThatAreCapturedAreRefused) {
  {
    const DeviceBuffer memory(gpu, bytes);
    const Stream stream(gpu), captured(gpu);
    SlotCache cache(gpu, memory.view(), options());
    auto writer = cache.acquire(1, bytes);
    driver.set_capturing(captured.native(), true);
    EXPECT_THROW(writer.filled(captured), Unsupported);
    std::promise<void> go;
    launch(driver, stream, {}, {}, [gone = go.get_future().share()] { gone.wait(); });
    writer.filled(stream);
    EXPECT_THROW(writer.join(captured), Unsupported);
    EXPECT_THROW(writer.release_after(captured), Unsupported);
    go.set_value();
    writer.wait();
    writer.release();
    // A miss that makes the cache look at its work: the fill is known to be done from then on.
    EXPECT_FALSE(cache.acquire(2, bytes).hit());
    auto reader = cache.acquire(3, bytes);
    reader.filled();
    reader.join(captured);  // nothing to wait for
    driver.set_capturing(captured.native(), false);
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(CudaSlotCache, AFailingAllocationOfAnEventLosesNoSlot) {
  {
    const DeviceBuffer memory(gpu, bytes);
    const Stream stream(gpu);
    SlotCache cache(gpu, memory.view(), options(WhenExhausted::fail));
    auto slot = cache.acquire(1, bytes);
    driver.fail_call(1, cuda::memory_allocation, allocating_calls);
    EXPECT_THROW(slot.filled(stream), OutOfMemory);
    slot.filled(stream);
    driver.fail_call(1, cuda::memory_allocation, allocating_calls);
    EXPECT_THROW(slot.release_after(stream), OutOfMemory);
    driver.disarm();
    slot.release_after(stream);
    stream.synchronize();
    EXPECT_FALSE(cache.acquire(2, bytes).hit());
  }
  EXPECT_TRUE(is_clean(driver));
}

}  // namespace
}  // namespace ps::test
