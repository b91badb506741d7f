// The fake driver fails on demand.
#include <gtest/gtest.h>

#include <vector>

#include "fake/fake_driver.h"
#include "fake/rig.h"
#include "support/expect_clean.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

using cuda::memory_allocation;
using cuda::success;

TEST(FakeFaults, TheNthCallFailsOnceAndDoesNothing) {
  FakeDriver driver;
  void* data = nullptr;
  driver.fail_call(2, unknown_error);
  int device = -1;
  EXPECT_EQ(driver.get_device(&device), success);
  EXPECT_FALSE(driver.fault_struck());
  EXPECT_EQ(driver.device_alloc(&data, 8), unknown_error);
  EXPECT_TRUE(driver.fault_struck());
  EXPECT_EQ(data, nullptr);
  EXPECT_EQ(driver.uncleared_errors(), std::vector<cuda::Status>{unknown_error});
  EXPECT_EQ(driver.last_error(), unknown_error);
  EXPECT_EQ(driver.device_alloc(&data, 8), success);
  EXPECT_EQ(driver.device_free(data), success);
  EXPECT_EQ(driver.calls(), 4U);
  EXPECT_EQ(driver.calls("device_alloc"), 2U);
  EXPECT_TRUE(is_clean(driver));
}

TEST(FakeFaults, AFilterCountsOnlyTheCallsItNames) {
  FakeDriver driver;
  driver.fail_call(2, memory_allocation, allocating_calls);
  cuda::StreamHandle stream = nullptr;
  EXPECT_EQ(driver.stream_create(&stream, false), success);
  EXPECT_EQ(driver.stream_synchronize(stream), success);
  EXPECT_EQ(driver.stream_query(stream), success);
  cuda::EventHandle event = nullptr;
  EXPECT_EQ(driver.event_create(&event, false, true), memory_allocation);
  driver.last_error();
  EXPECT_EQ(driver.stream_destroy(stream), success);
  EXPECT_TRUE(is_clean(driver));
}

TEST(FakeFaults, ADisarmedFaultDoesNotStrike) {
  FakeDriver driver;
  int device = -1;
  driver.fail_call(1, unknown_error);
  driver.disarm();
  EXPECT_EQ(driver.get_device(&device), success);
  EXPECT_FALSE(driver.fault_struck());
}

TEST(FakeFaults, CallsThatFreeOrWaitDoSoEvenWhenTheyFail) {
  Rig rig;
  FakeDriver& driver = rig.driver;
  const auto stream = rig.stream();
  void* data = nullptr;
  driver.device_alloc(&data, 8);
  driver.fill(data, 1, 8, stream);
  driver.fail_call(1, unknown_error);
  EXPECT_EQ(driver.stream_synchronize(stream), unknown_error);
  driver.fail_call(1, unknown_error);
  EXPECT_EQ(driver.device_free(data), unknown_error);
  EXPECT_EQ(driver.outstanding(), (Outstanding{.streams = 1}));
  EXPECT_TRUE(driver.violations().empty());
}

TEST(FakeFaults, ALostDeviceStaysLostAndDropsItsWork) {
  const Watchdog watchdog("FakeFaults.ALostDeviceStaysLostAndDropsItsWork");
  Rig rig({.devices = 2});
  FakeDriver& driver = rig.driver;
  const auto stream = rig.stream(0), other = rig.stream(1);
  const auto event = rig.event(0);
  std::uint8_t* memory = rig.memory(64, 0);
  auto* flag = reinterpret_cast<std::uint32_t*>(rig.pinned(4));
  *flag = 0;
  driver.set_device(0);
  driver.stream_wait_value(stream, flag, 1);
  driver.launch_host(stream, [](void*) { FAIL() << "dropped, as CUDA does"; }, nullptr);
  driver.event_record(event, stream);
  driver.stream_wait_event(other, event);
  driver.lose_device_at(2);
  EXPECT_EQ(driver.fill(memory, 1, 64, stream), success);
  EXPECT_EQ(driver.fill(memory, 1, 64, stream), illegal_address);
  EXPECT_EQ(driver.stream_synchronize(stream), illegal_address);
  EXPECT_EQ(driver.event_query(event), illegal_address);
  EXPECT_EQ(driver.device_synchronize(), illegal_address);
  EXPECT_EQ(driver.last_error(), illegal_address);
  EXPECT_EQ(driver.last_error(), illegal_address) << "sticky";
  cuda::StreamHandle fresh = nullptr;
  EXPECT_EQ(driver.stream_create(&fresh, false), illegal_address);
  // The other device goes on, also with what waited for the lost one.
  EXPECT_EQ(driver.stream_synchronize(other), success);
  EXPECT_TRUE(driver.violations().empty());
}

TEST(FakeFaults, LosingADeviceWakesWhoWaitsForIt) {
  const Watchdog watchdog("FakeFaults.LosingADeviceWakesWhoWaitsForIt");
  Rig rig;
  FakeDriver& driver = rig.driver;
  const auto held = rig.stream(), failing = rig.stream();
  auto* flag = reinterpret_cast<std::uint32_t*>(rig.pinned(4));
  *flag = 0;
  std::uint8_t* memory = rig.memory(64);
  driver.stream_wait_value(held, flag, 1);
  driver.fail_work(2, launch_failure);
  EXPECT_EQ(driver.fill(memory, 1, 64, failing), success);
  EXPECT_EQ(driver.fill(memory, 2, 64, failing), success) << "fails later, when its turn comes";
  EXPECT_EQ(driver.stream_synchronize(held), launch_failure);
  EXPECT_EQ(driver.stream_synchronize(failing), launch_failure);
  EXPECT_TRUE(driver.violations().empty());
}

TEST(FakeFaults, WhatIsFreedAfterALossCountsAsFreed) {
  FakeDriver driver;
  cuda::StreamHandle stream = nullptr;
  cuda::EventHandle event = nullptr;
  cuda::PoolHandle pool = nullptr;
  void *pinned = nullptr, *device = nullptr, *block = nullptr;
  driver.stream_create(&stream, false);
  driver.event_create(&event, false, true);
  driver.pool_create(&pool, 0, 0);
  driver.host_alloc(&pinned, 64);
  driver.device_alloc(&device, 64);
  driver.pool_alloc(&block, 64, pool, stream);
  driver.copy(device, pinned, 64, stream);
  driver.copy(block, device, 64, stream);
  driver.lose_device_at(1);
  EXPECT_EQ(driver.device_synchronize(), illegal_address);
  EXPECT_EQ(driver.pool_free(block, stream), illegal_address);
  EXPECT_EQ(driver.pool_destroy(pool), illegal_address);
  EXPECT_EQ(driver.host_free(pinned), illegal_address);
  EXPECT_EQ(driver.device_free(device), illegal_address);
  EXPECT_EQ(driver.event_destroy(event), illegal_address);
  EXPECT_EQ(driver.stream_destroy(stream), illegal_address);
  EXPECT_TRUE(is_clean_after_loss(driver));
}

TEST(FakeFaults, MissingAbilitiesAreMissing) {
  FakeDriver driver({.memory_pools = false, .virtual_memory = false, .stream_wait_value = false});
  cuda::StreamHandle stream = nullptr;
  driver.stream_create(&stream, false);
  void *flag = nullptr, *address = nullptr;
  driver.host_alloc(&flag, 4);
  cuda::PoolHandle pool = nullptr;
  EXPECT_EQ(driver.pool_create(&pool, 0, 0), not_supported);
  EXPECT_EQ(driver.address_reserve(&address, 1 << 16), not_supported);
  EXPECT_EQ(driver.stream_wait_value(stream, static_cast<std::uint32_t*>(flag), 1), not_supported);
  EXPECT_EQ(driver.stream_write_value(stream, static_cast<std::uint32_t*>(flag), 1), not_supported);
  EXPECT_EQ(driver.violations().size(), 4U) << "whoever calls them did not ask first";
}

}  // namespace
}  // namespace ps::test
