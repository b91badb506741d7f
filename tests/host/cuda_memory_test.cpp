// Pools, growable buffers and owned buffers of a GPU, on the fake driver.
#include <gtest/gtest.h>

#include <cstring>

#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/growable.h"
#include "penstock/host/pool.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

class CudaMemory : public testing::Test {
 protected:
  static constexpr std::size_t page = 64 * KiB;

  void TearDown() override { EXPECT_TRUE(is_clean(driver)); }

  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
  FakeMachine machine{
      {.devices = 2, .device_bytes = 64 * MiB, .pinned_bytes = 16 * MiB, .granularity = page}};
  FakeDriver& driver = machine.driver();
  Device gpu = machine.gpu();
};

TEST_F(CudaMemory, BuffersOwnWhatTheyHold) {
  PinnedBuffer pinned(gpu, 100);
  DeviceBuffer device(gpu, 200);
  EXPECT_EQ(pinned.view().place.memory, Memory::pinned);
  EXPECT_EQ(device.view().place, gpu.place());
  PinnedBuffer moved(std::move(pinned));
  pinned = PinnedBuffer(gpu, 50);
  pinned = std::move(moved);
  EXPECT_EQ(pinned.bytes(), 100U);
  DeviceBuffer other(std::move(device));
  EXPECT_EQ(device.bytes(), 0U);  // NOLINT: a moved-from buffer is empty
  EXPECT_EQ(driver.outstanding(), (Outstanding{.pinned = 2, .device = 1}));
  EXPECT_THROW(PinnedBuffer(gpu, 0), InvalidArgument);
  EXPECT_THROW(DeviceBuffer(gpu, ~std::size_t{0}), InvalidArgument);
}

TEST_F(CudaMemory, RunningOutIsAnErrorThatNamesTheMemory) {
  try {
    const PinnedBuffer pinned(gpu, 17 * MiB);
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested(), 17 * MiB);
    EXPECT_NE(std::string(error.what()).find("page-locked"), std::string::npos) << error.what();
  }
  try {
    const DeviceBuffer device(gpu, 65 * MiB);
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("cuda:0"), std::string::npos) << error.what();
  }
  const DeviceBuffer device(gpu, 64 * MiB);
  EXPECT_EQ(gpu.capabilities().free_bytes, 0U);
}

TEST_F(CudaMemory, PoolMemoryFollowsItsStream) {
  const Stream stream(gpu), other(gpu);
  const Event freed(gpu);
  const Pool pool(gpu);
  for (int i = 0; i < 50; ++i) {
    const MemoryView first = pool.allocate(1000, stream);
    EXPECT_EQ(first.bytes, 1000U);
    EXPECT_EQ(first.place, gpu.place());
    fill(first, 1, stream);
    pool.free(first, stream);
    const MemoryView again = pool.allocate(1000, stream);
    EXPECT_EQ(again.data, first.data) << "freed in this stream, so reusable in it";
    fill(again, 2, stream);
    pool.free(again, stream);
    stream.record(freed);
    other.wait(freed);
    const MemoryView elsewhere = pool.allocate(1000, other);
    fill(elsewhere, 3, other);
    pool.free(elsewhere, other);
    other.record(freed);
    stream.wait(freed);
  }
  EXPECT_EQ(pool.statistics().allocations, 150U);
  EXPECT_EQ(pool.statistics().in_use, 0U);
  EXPECT_EQ(pool.allocate(0, stream).data, nullptr);
  pool.free({}, stream);
  EXPECT_THROW(pool.allocate(8, Stream(machine.gpu(1))), InvalidArgument);
}

TEST_F(CudaMemory, APoolKeepsToItsLimitAndStaysUsable) {
  const Stream stream(gpu);
  const Pool pool(gpu, {.limit = 4 * MiB});
  const MemoryView first = pool.allocate(3 * MiB, stream);
  EXPECT_THROW(pool.allocate(3 * MiB, stream), OutOfMemory);
  EXPECT_EQ(pool.statistics().failures, 1U);
  pool.free(first, stream);
  stream.synchronize();
  const MemoryView second = pool.allocate(4 * MiB, stream);
  EXPECT_EQ(pool.statistics().in_use, 4 * MiB);
  pool.free(second, stream);
}

TEST_F(CudaMemory, APoolKeepsOrGivesBackAsAsked) {
  const Stream stream(gpu);
  const Pool keeps(gpu), gives(gpu, {.release_threshold = 0});
  for (const Pool& pool : {keeps, gives}) {
    pool.free(pool.allocate(4 * MiB, stream), stream);
    EXPECT_EQ(pool.statistics().reserved, 4 * MiB);
  }
  stream.synchronize();
  EXPECT_EQ(keeps.statistics().reserved, 4 * MiB);
  EXPECT_EQ(gives.statistics().reserved, 0U);
  EXPECT_EQ(gives.statistics().reserved_high, 4 * MiB);
  keeps.trim();
  EXPECT_EQ(keeps.statistics().reserved, 0U);
}

TEST_F(CudaMemory, AGrowableBufferKeepsAddressAndContents) {
  const Stream stream(gpu);
  const PinnedBuffer host(gpu, 4 * page);
  {
    GrowableBuffer buffer(gpu, {.capacity = 16 * page, .initial = 10});
    EXPECT_EQ(buffer.page(), page);
    EXPECT_EQ(buffer.view().bytes, 10U);
    EXPECT_EQ(buffer.mapped(), page);
    const auto* address = buffer.view().data;
    for (std::size_t pages = 1; pages <= 4; ++pages) {
      buffer.grow(pages * page, stream);
      EXPECT_EQ(buffer.view().data, address);
      EXPECT_EQ(buffer.view().bytes, pages * page);
      fill(buffer.view().sub((pages - 1) * page, page), static_cast<std::uint8_t>(pages), stream);
    }
    buffer.grow(page, stream);  // smaller: nothing happens
    EXPECT_EQ(buffer.view().bytes, 4 * page);
    copy(host.view(), buffer.view(), stream);
    EXPECT_THROW(buffer.grow(17 * page, stream), InvalidArgument);
    EXPECT_THROW(buffer.grow(page, Stream(machine.gpu(1))), InvalidArgument);
    // Destroyed with work enqueued: waits for it.
  }
  stream.synchronize();
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(host.view().as<std::uint8_t>()[i * page], i + 1);
  }
}

TEST_F(CudaMemory, AGrowableBufferWaitsOncePerNativeStream) {
  const auto native = driver.foreign_stream();
  std::uint64_t waits = 0;
  {
    GrowableBuffer buffer(gpu, {.capacity = 16 * page});
    for (std::size_t i = 0; i < 50; ++i) {
      const Stream handle = borrow_native(gpu, native);
      buffer.grow(page, handle);
      fill(buffer.view(), 1, handle);
    }
    waits = driver.calls("stream_synchronize");
  }
  EXPECT_EQ(driver.calls("stream_synchronize") - waits, 1U);
}

TEST_F(CudaMemory, AGrowableBufferForgetsDroppedStreamsAndStillWaitsForTheirWork) {
  const std::size_t before = driver.outstanding().streams;
  GrowableBuffer buffer(gpu, {.capacity = 16 * page});
  for (std::size_t i = 0; i < 16; ++i) {
    const Stream stream(gpu);
    buffer.grow((i + 1) * page, stream);
    fill(buffer.view().sub(i * page, page), 1, stream);
  }
  EXPECT_EQ(driver.outstanding().streams, before);
  // Destroyed while the work may still run: the driver complains if the pages go too early.
}

TEST_F(CudaMemory, GrowthThatFailsLeavesTheBufferAsItWas) {
  const Stream stream(gpu);
  GrowableBuffer buffer(gpu, {.capacity = 128 * MiB, .initial = page});
  for (const char* call : {"memory_create", "memory_map"}) {
    driver.fail_call(1, cuda::memory_allocation, {call});
    EXPECT_THROW(buffer.grow(2 * page, stream), OutOfMemory) << call;
    EXPECT_EQ(buffer.view().bytes, page);
    EXPECT_EQ(buffer.mapped(), page);
    EXPECT_EQ(driver.outstanding().memories, 1U);
  }
  EXPECT_THROW(buffer.grow(65 * MiB, stream), OutOfMemory) << "more than the device has";
  buffer.grow(2 * page, stream);
  fill(buffer.view(), 1, stream);
}

TEST(CudaAbilities, WhatADeviceCannotDoIsRefusedInWords) {
  FakeMachine machine({.memory_pools = false, .virtual_memory = false});
  const Device gpu = machine.gpu();
  EXPECT_FALSE(gpu.capabilities().memory_pools);
  EXPECT_THROW(Pool{gpu}, Unsupported);
  EXPECT_THROW(GrowableBuffer(gpu, {.capacity = 100}), Unsupported);
  EXPECT_TRUE(is_clean(machine.driver()));
}

}  // namespace
}  // namespace ps::test
