// Streams of the fake driver that wait for flags which other streams write.
#include <gtest/gtest.h>

#include <atomic>

#include "fake/fake_driver.h"
#include "fake/rig.h"
#include "support/expect_clean.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

using cuda::success;

class FakeFlag : public testing::Test {
 protected:
  static constexpr std::size_t bytes = 64;

  void raise(std::uint32_t value) {
    std::atomic_ref<std::uint32_t>(*flag).store(value, std::memory_order_release);
  }
  void SetUp() override { raise(0); }

  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
  Rig rig;
  FakeDriver& driver = rig.driver;
  std::uint8_t* host = rig.pinned(bytes);
  std::uint8_t* device = rig.memory(bytes);
  std::uint32_t* flag = reinterpret_cast<std::uint32_t*>(rig.pinned(sizeof(std::uint32_t)));
  cuda::StreamHandle writer = rig.stream(), reader = rig.stream();
};

// Work behind the wait is enqueued before or after the work that it waits for.
TEST_F(FakeFlag, WorkBehindAWaitFollowsWhatTheWriterDidBefore) {
  driver.fill(device, 1, bytes, writer);
  ASSERT_EQ(driver.stream_wait_value(reader, flag, 2), success);
  driver.copy(host, device, bytes, reader);
  driver.fill(device, 7, bytes, writer);
  ASSERT_EQ(driver.stream_write_value(writer, flag, 1), success);
  ASSERT_EQ(driver.stream_write_value(writer, flag, 2), success);
  driver.copy(host, device, bytes, reader);
  ASSERT_EQ(driver.stream_synchronize(reader), success);
  EXPECT_EQ(host[0], 7);
  EXPECT_TRUE(driver.violations().empty());
}

TEST_F(FakeFlag, WhatTheWriterDoesLaterIsNotOrdered) {
  ASSERT_EQ(driver.stream_wait_value(reader, flag, 1), success);
  driver.copy(host, device, bytes, reader);
  ASSERT_EQ(driver.stream_write_value(writer, flag, 1), success);
  driver.fill(device, 7, bytes, writer);
  driver.device_synchronize();
  ASSERT_FALSE(driver.violations().empty());
  EXPECT_NE(driver.violations().front().find("fill on stream 0 does not wait for copy on stream 1"),
            std::string::npos);
}

TEST_F(FakeFlag, AFlagRaisedTooEarlyIsSeen) {
  std::atomic<bool> go{false};
  driver.kernel(writer, {}, {{device, bytes}}, [&] { go.wait(false); });
  ASSERT_EQ(driver.stream_wait_value(reader, flag, 1), success);
  driver.copy(host, device, bytes, reader);
  EXPECT_TRUE(driver.violations().empty()) << "not wrong yet";
  raise(1);
  driver.stream_synchronize(reader);
  go = true;
  go.notify_all();
  driver.stream_synchronize(writer);  // the kernel reads `go`
  EXPECT_TRUE(only_violation(driver, "copy on stream 1 does not wait for kernel on stream 0"));
}

TEST_F(FakeFlag, TheHostMayRaiseItWhenItKnowsThatTheWorkIsDone) {
  driver.fill(device, 7, bytes, writer);
  ASSERT_EQ(driver.stream_wait_value(reader, flag, 1), success);
  driver.copy(host, device, bytes, reader);
  driver.stream_synchronize(writer);
  raise(1);
  driver.stream_synchronize(reader);
  EXPECT_EQ(host[0], 7);
  EXPECT_TRUE(driver.violations().empty());
}

TEST_F(FakeFlag, OnlyPageLockedMemoryAndOnlyWhereItIsSupported) {
  EXPECT_EQ(driver.stream_write_value(writer, reinterpret_cast<std::uint32_t*>(device), 1),
            invalid_value);
  EXPECT_TRUE(only_violation(driver, "not page-locked"));
  Rig other({.stream_wait_value = false});
  auto* const pinned = reinterpret_cast<std::uint32_t*>(other.pinned(4));
  EXPECT_EQ(other.driver.stream_write_value(other.stream(), pinned, 1), not_supported);
  EXPECT_TRUE(only_violation(other.driver, "on a device that cannot"));
}

}  // namespace
}  // namespace ps::test
