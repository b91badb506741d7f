// A few page-locked slots serve many batches on a GPU.
#include "penstock/host/slot_ring.h"

#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gpu/gate.h"
#include "gpu/gpu_test.h"
#include "host/backend.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "support/waiting_name.h"

namespace ps::test {
namespace {

constexpr std::size_t bytes = 8 * 1024 + 5;
constexpr std::size_t batches = 200;

class SlotRingGpu : public GpuTest, public testing::WithParamInterface<Waiting> {
 protected:
  SlotRingOptions options(std::size_t slots, WhenExhausted when = WhenExhausted::wait) const {
    return {.slots = slots, .slot_bytes = bytes, .when_exhausted = when, .waiting = GetParam()};
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, SlotRingGpu,
                         testing::Values(Waiting::poll, Waiting::spin, Waiting::block),
                         waiting_name);

// A slot that came back too early would be overwritten before the device has read it.
TEST_P(SlotRingGpu, AFewSlotsServeManyBatches) {
  std::vector<std::uint8_t> source(batches * bytes);
  std::mt19937 random(1);
  for (auto& byte : source) byte = static_cast<std::uint8_t>(random());
  const Stream first(gpu), second(gpu);
  const DeviceBuffer target(gpu, source.size());
  for (const std::size_t slots : {3, 4}) {
    fill(target.view(), poison, first);
    first.synchronize();
    SlotRing ring(gpu, options(slots));
    std::uint64_t warm = 0;
    for (std::size_t batch = 0; batch < batches; ++batch) {
      if (batch == slots) warm = gpu.backend().allocations();
      SlotRing::Slot slot = ring.acquire();
      std::memcpy(slot.view().data, &source[batch * bytes], bytes);
      const Stream& stream = batch % 3 == 0 ? first : second;
      copy(target.view().sub(batch * bytes, bytes), slot.view(), stream);
      slot.release_after(stream);
    }
    first.synchronize();
    second.synchronize();
    EXPECT_EQ(gpu.backend().allocations(), warm) << "something was allocated per batch";
    EXPECT_EQ(ring.statistics().acquired, batches);
    EXPECT_TRUE(look(target.view()) == source) << slots << " slots";
  }
}

TEST_P(SlotRingGpu, ExhaustionFailsWhereTheCallerSaidSo) {
  const Stream stream(gpu);
  const DeviceBuffer target(gpu, bytes);
  SlotRing ring(gpu, options(3, WhenExhausted::fail));
  {
    const Gate gate(cuda_stream(stream));
    for (int i = 0; i < 3; ++i) {
      SlotRing::Slot slot = ring.acquire();
      copy(target.view(), slot.view(), stream);
      slot.release_after(stream);
    }
    EXPECT_THROW(ring.acquire(), Exhausted);
    EXPECT_FALSE(ring.try_acquire().has_value());
    EXPECT_EQ(ring.statistics().exhausted, 2U);
    EXPECT_EQ(ring.statistics().free_slots, 0U);
  }
  EXPECT_TRUE(ring.try_acquire(std::chrono::seconds(60)).has_value()) << "no slot came back";
}

TEST_P(SlotRingGpu, ExhaustionWaitsOtherwise) {
  const Stream stream(gpu);
  const DeviceBuffer target(gpu, bytes);
  SlotRing ring(gpu, options(1));
  Gate gate(cuda_stream(stream));
  SlotRing::Slot slot = ring.acquire();
  copy(target.view(), slot.view(), stream);
  slot.release_after(stream);
  const std::jthread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    gate.open();
  });
  const SlotRing::Slot again = ring.acquire();
  EXPECT_TRUE(gate.is_open()) << "the slot came back while the device still used it";
  EXPECT_EQ(ring.statistics().exhausted, 1U);
  EXPECT_EQ(ring.statistics().acquired, 2U);
}

TEST_P(SlotRingGpu, ASlotIsNotHeldUpByOneReleasedBeforeIt) {
  const Stream slow(gpu), fast(gpu);
  const DeviceBuffer target(gpu, 2 * bytes);
  SlotRing ring(gpu, options(2));
  const Gate gate(cuda_stream(slow));
  SlotRing::Slot first = ring.acquire(), second = ring.acquire();
  const std::size_t index = second.index();
  copy(target.view().sub(0, bytes), first.view(), slow);
  first.release_after(slow);
  copy(target.view().sub(bytes, bytes), second.view(), fast);
  second.release_after(fast);
  const auto back = ring.try_acquire(std::chrono::seconds(10));
  EXPECT_FALSE(gate.is_open());
  ASSERT_TRUE(back.has_value()) << "the stream of the second slot was done long ago";
  EXPECT_EQ(back->index(), index);
}

TEST_P(SlotRingGpu, SeveralThreadsMayShareIt) {
  SlotRingOptions measured = options(4);
  measured.measure = true;
  SlotRing ring(gpu, measured);
  std::vector<int> right(3, 0);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < right.size(); ++t) {
      threads.emplace_back([&, t] {
        const Stream stream(gpu);
        const DeviceBuffer memory(gpu, bytes);
        const PinnedBuffer out(gpu, bytes);
        for (int i = 0; i < 30; ++i) {
          SlotRing::Slot slot = ring.acquire();
          const auto value = static_cast<std::uint8_t>(t * 50 + static_cast<std::size_t>(i));
          std::memset(slot.view().data, value, bytes);
          copy(memory.view(), slot.view(), stream);
          slot.release_after(stream);
          copy(out.view(), memory.view(), stream);
          stream.synchronize();
          const auto* got = out.view().as<std::uint8_t>();
          right[t] += all_are({got, got + bytes}, value) ? 1 : 0;
        }
      });
    }
  }
  EXPECT_EQ(right, std::vector<int>(3, 30));
  const SlotRingStatistics statistics = ring.statistics();
  EXPECT_EQ(statistics.acquired, 90U);
  ASSERT_TRUE(statistics.recycle_p50_us.has_value());
  EXPECT_LE(*statistics.recycle_p50_us, *statistics.recycle_p99_us);
}

}  // namespace
}  // namespace ps::test
