// The ring of page-locked slots on the fake driver: when a slot comes back, the device is done.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/slot_ring.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/waiting_name.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

class CudaSlotRing : public testing::TestWithParam<Waiting> {
 protected:
  static constexpr std::size_t bytes = 64;

  SlotRingOptions options(std::size_t slots) const {
    return {.slots = slots, .slot_bytes = bytes, .waiting = GetParam()};
  }
  // Writes a batch into a slot and sends it off.
  void send(SlotRing::Slot slot, const DeviceBuffer& to, std::uint8_t value, const Stream& stream) {
    driver.host_write(slot.view().data, bytes);
    std::memset(slot.view().data, value, bytes);
    copy(to.view(), slot.view(), stream);
    slot.release_after(stream);
  }

  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
  FakeMachine machine;
  FakeDriver& driver = machine.driver();
  Device gpu = machine.gpu();
};

INSTANTIATE_TEST_SUITE_P(Ways, CudaSlotRing,
                         testing::Values(Waiting::poll, Waiting::block, Waiting::spin),
                         waiting_name);

TEST_P(CudaSlotRing, SlotsComeBackWhenTheDeviceIsDone) {
  {
    const Stream stream(gpu);
    const DeviceBuffer target(gpu, bytes);
    SlotRing ring(gpu, options(3));
    const Outstanding before = driver.outstanding();
    for (int i = 0; i < 200; ++i)
      send(ring.acquire(), target, static_cast<std::uint8_t>(i), stream);
    stream.synchronize();
    EXPECT_EQ(target.view().as<std::uint8_t>()[bytes - 1], 199);
    EXPECT_EQ(ring.statistics().acquired, 200U);
    EXPECT_EQ(driver.outstanding(), before) << "nothing is allocated per batch";
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_P(CudaSlotRing, ASlotIsNotHeldUpByOneReleasedBeforeIt) {
  {
    const Stream slow(gpu), fast(gpu);
    const DeviceBuffer target(gpu, bytes);
    SlotRing ring(gpu, options(2));
    std::promise<void> go;
    launch(driver, slow, {}, {}, [gone = go.get_future().share()] { gone.wait(); });
    SlotRing::Slot first = ring.acquire();
    SlotRing::Slot second = ring.acquire();
    const std::size_t index = second.index();
    first.release_after(slow);
    send(std::move(second), target, 1, fast);
    const auto back = ring.try_acquire(std::chrono::seconds(10));
    go.set_value();
    ASSERT_TRUE(back.has_value()) << "the stream of the second slot was done long ago";
    EXPECT_EQ(back->index(), index);
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_P(CudaSlotRing, ASlotMayOutliveTheRing) {
  {
    const Stream stream(gpu);
    const DeviceBuffer target(gpu, bytes);
    std::optional<SlotRing::Slot> kept;
    {
      SlotRing ring(gpu, options(2));
      kept = ring.acquire();
      send(ring.acquire(), target, 1, stream);
    }
    send(std::move(*kept), target, 2, stream);
    stream.synchronize();
    EXPECT_EQ(target.view().as<std::uint8_t>()[0], 2);
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_P(CudaSlotRing, MeasuresHowLateSlotsAreWhileSeveralThreadsUseThem) {
  {
    SlotRingOptions measured = options(4);
    measured.measure = true;
    SlotRing ring(gpu, measured);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        const Stream stream(gpu);
        const DeviceBuffer target(gpu, bytes);
        for (int i = 0; i < 30; ++i) send(ring.acquire(), target, 1, stream);
        stream.synchronize();
      });
    }
    for (int i = 0; i < 5; ++i) (void)ring.statistics();
    threads.clear();
    const SlotRingStatistics statistics = ring.statistics();
    ASSERT_TRUE(statistics.recycle_p50_us.has_value());
    EXPECT_LE(*statistics.recycle_p50_us, *statistics.recycle_p99_us);
    EXPECT_EQ(statistics.acquired, 90U);
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_P(CudaSlotRing, AReleaseThatFailsLosesNoSlotAndHandsOutNoneInUse) {
  {
    const Stream stream(gpu);
    const DeviceBuffer target(gpu, bytes);
    SlotRing ring(gpu, options(2));
    for (std::uint64_t n = 1;; ++n) {
      SlotRing::Slot slot = ring.acquire();
      driver.host_write(slot.view().data, bytes);
      copy(target.view(), slot.view(), stream);
      driver.fail_call(n, unknown_error);
      try {
        slot.release_after(stream);
      } catch (const DeviceError& error) {
        EXPECT_EQ(error.code(), unknown_error);
      }
      // The ring's own thread may be the one to meet the fault.
      {
        const SlotRing::Slot given_up = std::move(slot);
      }
      for (int attempt = 0; attempt < 2; ++attempt) {
        try {
          std::vector<SlotRing::Slot> all;
          for (std::size_t i = 0; i < ring.slots(); ++i) {
            all.push_back(ring.acquire());
            driver.host_write(all.back().view().data, bytes);
          }
          break;
        } catch (const DeviceError& error) {
          EXPECT_EQ(error.code(), unknown_error);
          EXPECT_EQ(attempt, 0) << "an error is reported once";
        }
      }
      const bool struck = driver.fault_struck();
      driver.disarm();
      if (!struck) break;
    }
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_P(CudaSlotRing, ALostDeviceEndsTheWaitForASlot) {
  {
    const Stream stream(gpu);
    const DeviceBuffer target(gpu, bytes);
    SlotRing ring(gpu, options(1));
    driver.fail_work(1, illegal_address);
    try {
      send(ring.acquire(), target, 1, stream);
      send(ring.acquire(), target, 2, stream);
      send(ring.acquire(), target, 3, stream);
      FAIL() << "the loss was not reported";
    } catch (const DeviceError& error) {
      EXPECT_EQ(error.code(), illegal_address);
    }
  }
  EXPECT_TRUE(is_clean_after_loss(driver));
}

TEST_P(CudaSlotRing, AFailingAllocationLeavesNothingBehind) {
  for (std::uint64_t n = 1;; ++n) {
    SlotRingOptions measured = options(3);
    measured.measure = true;
    driver.fail_call(n, cuda::memory_allocation, allocating_calls);
    try {
      const SlotRing ring(gpu, measured);
      EXPECT_FALSE(driver.fault_struck());
    } catch (const OutOfMemory&) {
      EXPECT_TRUE(driver.fault_struck());
    }
    EXPECT_TRUE(is_clean(driver)) << "n = " << n;
    if (!driver.fault_struck()) break;
  }
  driver.disarm();
}

}  // namespace
}  // namespace ps::test
