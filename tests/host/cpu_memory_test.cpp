#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/growable.h"
#include "penstock/host/pool.h"
#include "penstock/host/slot_ring.h"
#include "support/waiting_name.h"

namespace {

using namespace std::chrono_literals;

// Holds a stream until it is released. The stream may look at it once more after that, when the
// gate is gone, so the two share what it looks at.
class Gate {
 public:
  explicit Gate(const ps::Stream& stream) {
    stream.call([open = open_] {
      while (!*open) std::this_thread::yield();
    });
  }
  void open() { *open_ = true; }

 private:
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

TEST(CpuPool, FreedMemoryIsReusedAtOnceByItsStreamAndLaterByOthers) {
  const ps::Stream stream(ps::Device::cpu()), other(ps::Device::cpu());
  const ps::Pool pool(ps::Device::cpu());
  Gate gate(stream);
  const auto first = pool.allocate(ps::MiB, stream);
  pool.free(first, stream);
  // The free has not been reached: another stream must not get the same bytes, this one may.
  const auto elsewhere = pool.allocate(ps::MiB, other);
  EXPECT_NE(elsewhere.data, first.data);
  const auto again = pool.allocate(ps::MiB, stream);
  EXPECT_EQ(again.data, first.data);
  pool.free(again, stream);
  gate.open();
  stream.synchronize();
  EXPECT_EQ(pool.allocate(ps::MiB, other).data, first.data);
}

TEST(CpuPool, CountsWhatItHolds) {
  const ps::Stream stream(ps::Device::cpu());
  const ps::Pool pool(ps::Device::cpu());
  const auto a = pool.allocate(ps::MiB, stream);
  const auto b = pool.allocate(2 * ps::MiB, stream);
  EXPECT_EQ(pool.statistics().in_use, 3 * ps::MiB);
  pool.free(a, stream);
  pool.free(b, stream);
  stream.synchronize();
  auto statistics = pool.statistics();
  EXPECT_EQ(statistics.in_use, 0U);
  EXPECT_EQ(statistics.in_use_high, 3 * ps::MiB);
  EXPECT_EQ(statistics.reserved, 3 * ps::MiB);
  EXPECT_EQ(statistics.allocations, 2U);
  pool.trim(2 * ps::MiB);
  EXPECT_LE(pool.statistics().reserved, 2 * ps::MiB);
  pool.trim();
  statistics = pool.statistics();
  EXPECT_EQ(statistics.reserved, 0U);
  EXPECT_EQ(statistics.reserved_high, 3 * ps::MiB);
}

TEST(CpuPool, ThresholdZeroGivesEverythingBack) {
  const ps::Stream stream(ps::Device::cpu());
  const ps::Pool pool(ps::Device::cpu(), {.release_threshold = 0});
  pool.free(pool.allocate(ps::MiB, stream), stream);
  stream.synchronize();
  EXPECT_EQ(pool.statistics().reserved, 0U);
}

TEST(CpuPool, LimitIsHardAndThePoolStaysUsable) {
  const ps::Stream stream(ps::Device::cpu());
  const ps::Pool pool(ps::Device::cpu(), {.limit = 4 * ps::MiB});
  const auto a = pool.allocate(3 * ps::MiB, stream);
  EXPECT_THROW(pool.allocate(2 * ps::MiB, stream), ps::OutOfMemory);
  EXPECT_EQ(pool.statistics().failures, 1U);
  EXPECT_EQ(pool.statistics().in_use, 3 * ps::MiB);
  pool.free(a, stream);
  stream.synchronize();
  EXPECT_NE(pool.allocate(4 * ps::MiB, stream).data, nullptr);  // what was cached made room
  EXPECT_LE(pool.statistics().reserved_high, 4 * ps::MiB);
}

// As cudaMallocAsync does: the stream that allocates waits, and the caller goes on.
TEST(CpuPool, AtItsLimitMemoryThatOthersFreeIsTakenAndWaitedFor) {
  const ps::Stream busy(ps::Device::cpu()), stream(ps::Device::cpu());
  // One block that fits, and the room of two that do not.
  for (const std::size_t wanted : {ps::MiB, 3 * ps::MiB}) {
    const ps::Pool pool(ps::Device::cpu(), {.limit = 4 * ps::MiB});
    Gate gate(busy);
    std::vector<ps::MemoryView> held;
    for (int i = 0; i < 4; ++i) held.push_back(pool.allocate(ps::MiB, busy));
    std::atomic<std::size_t> used{0}, used_before{0};
    for (std::size_t i = 0; i < 3; ++i) {
      busy.call([&used, memory = held[i]] {
        std::memset(memory.data, 1, memory.bytes);
        ++used;
      });
      pool.free(held[i], busy);
    }
    const auto taken = pool.allocate(wanted, stream);
    stream.call([&, taken] {
      used_before = used.load();
      std::memset(taken.data, 2, taken.bytes);
    });
    EXPECT_FALSE(stream.done());
    EXPECT_LE(pool.statistics().reserved_high, 4 * ps::MiB);
    // One block is still held, so this cannot be had whatever comes free.
    EXPECT_THROW(pool.allocate(4 * ps::MiB, stream), ps::OutOfMemory);
    gate.open();
    stream.synchronize();
    EXPECT_GE(used_before, wanted / ps::MiB) << "touched while its former users may still run";
    EXPECT_EQ(std::to_integer<int>(taken.data[wanted - 1]), 2);
    pool.free(taken, stream);
    pool.free(held[3], busy);
    stream.synchronize();
    busy.synchronize();
    EXPECT_EQ(pool.statistics().in_use, 0U);
    EXPECT_LE(pool.statistics().reserved_high, 4 * ps::MiB);
  }
}

// A block changes hands while its first free has not been reached, and then leaves the pool: it
// must stay until its last user is done.
TEST(CpuPool, MemoryThatChangesHandsAheadOfItsFreesLastsAsLongAsItIsUsed) {
  const ps::Stream busy(ps::Device::cpu()), second(ps::Device::cpu()), third(ps::Device::cpu());
  const ps::Pool pool(ps::Device::cpu(), {.limit = 2 * ps::MiB});
  const auto use = [](const ps::Stream& stream, ps::MemoryView memory) {
    stream.call([memory] { std::memset(memory.data, 1, memory.bytes); });
  };
  Gate gate(busy);
  const auto a = pool.allocate(ps::MiB, busy);
  const auto b = pool.allocate(ps::MiB, busy);
  pool.free(a, busy);
  pool.free(b, busy);
  const auto c = pool.allocate(ps::MiB, second);
  EXPECT_TRUE(c.data == a.data || c.data == b.data);
  Gate after_first_free(second);
  use(second, c);
  pool.free(c, second);
  const auto d = pool.allocate(2 * ps::MiB, third);  // the room of both
  use(third, d);
  gate.open();
  busy.synchronize();
  after_first_free.open();
  third.synchronize();
  pool.free(d, third);
  third.synchronize();
  EXPECT_EQ(pool.statistics().in_use, 0U);
  EXPECT_EQ(pool.statistics().reserved_high, 2 * ps::MiB);
}

TEST(CpuPool, EdgeSizes) {
  const ps::Stream stream(ps::Device::cpu());
  const ps::Pool pool(ps::Device::cpu());
  EXPECT_EQ(pool.allocate(0, stream).data, nullptr);
  pool.free({}, stream);
  EXPECT_THROW(pool.allocate(~std::size_t{0}, stream), ps::InvalidArgument);
  EXPECT_THROW(pool.allocate(std::size_t{1} << 60, stream), ps::OutOfMemory);
  const auto tiny = pool.allocate(1, stream);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tiny.data) % 256, 0U);
  pool.free(tiny, stream);
}

TEST(CpuGrowable, KeepsAddressAndContents) {
  const ps::Stream stream(ps::Device::cpu());
  ps::GrowableBuffer buffer(ps::Device::cpu(), {.capacity = 64 * ps::MiB, .initial = 100});
  std::byte* const address = buffer.view().data;
  ps::fill(buffer.view(), 42, stream);
  for (std::size_t bytes = 1000; bytes <= 64 * ps::MiB; bytes *= 4) {
    buffer.grow(bytes, stream);
    ASSERT_EQ(buffer.view().data, address);
    ASSERT_EQ(buffer.view().bytes, bytes);
    ASSERT_GE(buffer.mapped(), bytes);
    ps::fill(buffer.view().sub(bytes - 1, 1), 1, stream);
  }
  stream.synchronize();
  EXPECT_EQ(address[99], std::byte{42});
  buffer.grow(10, stream);  // never shrinks
  EXPECT_GT(buffer.view().bytes, 10U);
  EXPECT_THROW(buffer.grow(65 * ps::MiB, stream), ps::InvalidArgument);
  EXPECT_THROW(ps::GrowableBuffer(ps::Device::cpu(), {}), ps::InvalidArgument);
  EXPECT_THROW(ps::GrowableBuffer(ps::Device::cpu(), {.capacity = 1, .initial = 2}),
               ps::InvalidArgument);
}

std::size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST(CpuGrowable, DoesNotKeepTheStreamsItGrewOn) {
  const std::size_t before = threads_of_this_process();
  constexpr std::size_t streams = 100;
  ps::GrowableBuffer buffer(ps::Device::cpu(), {.capacity = streams * 4096});
  for (std::size_t i = 1; i <= streams; ++i) {
    const ps::Stream stream(ps::Device::cpu());
    buffer.grow(i * 4096, stream);
    ps::fill(buffer.view().sub((i - 1) * 4096, 4096), 1, stream);  // each its own page
  }
  // A stream's thread ends by itself, soon after the last handle is gone.
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (threads_of_this_process() > before + streams / 10 &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_LE(threads_of_this_process(), before + streams / 10);
}

TEST(CpuGrowable, WaitsForWorkOfADroppedStream) {
  std::atomic<bool> ran{false};
  {
    ps::GrowableBuffer buffer(ps::Device::cpu(), {.capacity = 4096});
    const ps::Stream stream(ps::Device::cpu());
    buffer.grow(4096, stream);
    stream.call([&ran, data = buffer.view().data] {
      std::this_thread::sleep_for(50ms);
      *data = std::byte{1};
      ran = true;
    });
  }
  EXPECT_TRUE(ran);
}

TEST(CpuGrowable, LeavesAStreamsErrorToItsOwner) {
  const ps::Stream stream(ps::Device::cpu());
  {
    ps::GrowableBuffer buffer(ps::Device::cpu(), {.capacity = 4096});
    buffer.grow(4096, stream);
    stream.call([] { throw std::domain_error("from the stream"); });
  }
  EXPECT_THROW(stream.synchronize(), std::domain_error);
}

class SlotRings : public testing::TestWithParam<ps::Waiting> {};

TEST_P(SlotRings, FewSlotsServeManyBatches) {
  const ps::Stream stream(ps::Device::cpu());
  ps::SlotRing ring(ps::Device::cpu(),
                    {.slots = 3, .slot_bytes = 64, .waiting = GetParam(), .measure = true});
  const std::uint64_t warm = ps::Device::cpu().allocations();
  std::vector<std::byte> sink(64);
  for (int batch = 0; batch < 1000; ++batch) {
    auto slot = ring.acquire();
    const auto value = static_cast<std::uint8_t>(batch);
    std::memset(slot.view().data, value, 64);
    const std::byte* bytes = slot.view().data;
    stream.call([bytes, value, &sink] {
      std::memcpy(sink.data(), bytes, 64);
      if (sink[63] != std::byte{value}) throw std::runtime_error("slot was overwritten in use");
    });
    slot.release_after(stream);
  }
  stream.synchronize();
  const auto statistics = ring.statistics();
  EXPECT_EQ(statistics.acquired, 1000U);
  EXPECT_EQ(ps::Device::cpu().allocations(), warm);
  ASSERT_TRUE(statistics.recycle_p50_us.has_value());
  EXPECT_LE(*statistics.recycle_p50_us, *statistics.recycle_p99_us);
}

TEST_P(SlotRings, ExhaustionFailsOrWaitsAndIsCounted) {
  const ps::Stream stream(ps::Device::cpu());
  ps::SlotRing ring(ps::Device::cpu(), {.slots = 2,
                                        .slot_bytes = 64,
                                        .when_exhausted = ps::WhenExhausted::fail,
                                        .waiting = GetParam()});
  Gate gate(stream);
  auto a = ring.acquire();
  auto b = ring.acquire();
  EXPECT_THROW(ring.acquire(), ps::Exhausted);
  EXPECT_FALSE(ring.try_acquire(1ms).has_value());
  EXPECT_EQ(ring.statistics().exhausted, 2U);
  a.release_after(stream);
  EXPECT_FALSE(ring.try_acquire().has_value());  // the stream has not got there
  gate.open();
  EXPECT_TRUE(ring.try_acquire(10s).has_value());
  b.release();
  EXPECT_NO_THROW(ring.acquire());
}

TEST_P(SlotRings, ASlotIsNotHeldUpByOneReleasedBeforeIt) {
  const ps::Stream slow(ps::Device::cpu()), fast(ps::Device::cpu());
  ps::SlotRing ring(ps::Device::cpu(), {.slots = 2, .slot_bytes = 64, .waiting = GetParam()});
  Gate gate(slow);
  auto first = ring.acquire();
  auto second = ring.acquire();
  const std::size_t index = second.index();
  first.release_after(slow);
  second.release_after(fast);
  const auto back = ring.try_acquire(10s);
  gate.open();
  ASSERT_TRUE(back.has_value()) << "the stream of the second slot was done long ago";
  EXPECT_EQ(back->index(), index);
}

TEST_P(SlotRings, DroppedSlotsComeBack) {
  ps::SlotRing ring(ps::Device::cpu(), {.slots = 1, .slot_bytes = 64, .waiting = GetParam()});
  for (int i = 0; i < 10; ++i) ring.acquire();
  EXPECT_EQ(ring.statistics().free_slots, 1U);
}

TEST_P(SlotRings, SlotsMayOutliveTheRing) {
  std::optional<ps::SlotRing::Slot> slot;
  const ps::Stream stream(ps::Device::cpu());
  {
    ps::SlotRing ring(ps::Device::cpu(), {.slots = 2, .slot_bytes = 64, .waiting = GetParam()});
    ring.acquire().release_after(stream);
    slot = ring.acquire();
  }
  std::memset(slot->view().data, 1, 64);
  slot->release_after(stream);
  stream.synchronize();
}

INSTANTIATE_TEST_SUITE_P(Waiting, SlotRings,
                         testing::Values(ps::Waiting::poll, ps::Waiting::spin, ps::Waiting::block),
                         ps::test::waiting_name);

TEST(SlotRing, RefusesNonsense) {
  EXPECT_THROW(ps::SlotRing(ps::Device::cpu(), {.slots = 0, .slot_bytes = 1}), ps::InvalidArgument);
  EXPECT_THROW(ps::SlotRing(ps::Device::cpu(), {.slots = 1}), ps::InvalidArgument);
  EXPECT_THROW(ps::SlotRing(ps::Device::cpu(), {.slots = ~std::size_t{0}, .slot_bytes = 2}),
               ps::InvalidArgument);
}

}  // namespace
