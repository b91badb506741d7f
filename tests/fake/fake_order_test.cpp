// The fake driver finds what CUDA leaves to luck: missing waits and wrong streams.
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>

#include "fake/fake_driver.h"
#include "fake/rig.h"
#include "support/expect_clean.h"

namespace ps::test {
namespace {

using cuda::success;

class FakeOrder : public testing::Test {
 protected:
  static constexpr std::size_t bytes = 256;
  Rig rig;
  FakeDriver& driver = rig.driver;
  std::uint8_t* host = rig.pinned(bytes);
  std::uint8_t* device = rig.memory(bytes);
  cuda::StreamHandle a = rig.stream(), b = rig.stream(), c = rig.stream();
};

TEST_F(FakeOrder, AReadOnAnotherStreamMustWaitForTheWrite) {
  driver.fill(device, 1, bytes, a);
  driver.copy(host, device, bytes, b);
  EXPECT_TRUE(only_violation(driver, "copy on stream 1 does not wait for fill on stream 0"));
}

TEST_F(FakeOrder, AWriteOnAnotherStreamMustWaitForTheRead) {
  driver.copy(host, device, bytes, a);
  driver.fill(device, 1, bytes, b);
  EXPECT_TRUE(only_violation(driver, "fill on stream 1 does not wait for copy on stream 0"));
}

TEST_F(FakeOrder, TwoReadsNeedNoOrderNorDoOtherBytes) {
  std::uint8_t* other = rig.pinned(bytes);
  driver.copy(host, device, bytes, a);
  driver.copy(other, device, bytes, b);
  driver.fill(host, 1, bytes / 2, a);
  driver.stream_wait_event(c, rig.mark(a));
  driver.fill(host + bytes / 2, 1, bytes / 2, c);
  EXPECT_TRUE(driver.violations().empty());
  driver.fill(host + bytes / 2 - 1, 1, 1, b);
  EXPECT_TRUE(only_violation(driver, "fill on stream 1 does not wait for fill on stream 0"));
}

TEST_F(FakeOrder, OrderGoesThroughOtherStreams) {
  driver.fill(device, 1, bytes, a);
  driver.stream_wait_event(b, rig.mark(a));
  driver.stream_wait_event(c, rig.mark(b));
  driver.copy(host, device, bytes, c);
  EXPECT_TRUE(driver.violations().empty());
}

TEST_F(FakeOrder, AWaitCoversOnlyWhatWasRecorded) {
  const auto event = rig.mark(a);
  driver.fill(device, 1, bytes, a);
  driver.stream_wait_event(b, event);
  driver.copy(host, device, bytes, b);
  EXPECT_TRUE(only_violation(driver, "does not wait for fill"));
}

TEST_F(FakeOrder, WaitingOnTheHostOrdersWhatIsEnqueuedLater) {
  driver.fill(device, 1, bytes, a);
  driver.stream_synchronize(a);
  driver.copy(host, device, bytes, b);
  const auto event = rig.mark(b);
  while (driver.event_query(event) == cuda::not_ready) std::this_thread::yield();
  driver.last_error();
  driver.fill(device, 2, bytes, c);
  driver.device_synchronize();
  driver.host_read(host, bytes);
  driver.fill(host, 2, bytes, a);
  EXPECT_TRUE(driver.violations().empty());
}

TEST_F(FakeOrder, ACopyThatWasNotOrderedIsNotRepeatedForLaterWork) {
  driver.fill(device, 1, bytes, a);
  driver.copy(host, device, bytes, b);
  driver.stream_synchronize(b);
  driver.host_read(host, bytes);
  EXPECT_EQ(driver.violations().size(), 1U);
}

TEST_F(FakeOrder, TheHostMustWaitBeforeItReads) {
  driver.copy(host, device, bytes, a);
  driver.host_read(host, bytes);
  EXPECT_TRUE(only_violation(driver, "the host reads memory without waiting for copy"));
}

TEST_F(FakeOrder, TheHostMustWaitBeforeItWritesWhatIsRead) {
  driver.copy(device, host, bytes, a);
  driver.host_read(host, bytes);  // two reads
  EXPECT_TRUE(driver.violations().empty());
  driver.host_write(host, bytes);
  EXPECT_TRUE(only_violation(driver, "the host writes memory without waiting for copy"));
}

TEST_F(FakeOrder, AnotherStreamsSynchronisationDoesNotCount) {
  driver.copy(host, device, bytes, a);
  driver.stream_synchronize(b);
  driver.host_read(host, bytes);
  EXPECT_TRUE(only_violation(driver, "the host reads memory"));
}

TEST_F(FakeOrder, AHostFunctionMayTouchWhatTheWorkBehindItWillTouch) {
  struct Access {
    FakeDriver* driver;
    std::uint8_t* host;
  } access{&driver, host};
  driver.copy(host, device, bytes, a);
  driver.launch_host(
      a,
      [](void* argument) {
        auto& mine = *static_cast<Access*>(argument);
        mine.driver->host_write(mine.host, bytes);
        mine.host[0] = 9;
      },
      &access);
  driver.copy(device, host, bytes, a);
  driver.stream_synchronize(a);
  EXPECT_TRUE(driver.violations().empty());
  EXPECT_EQ(device[0], 9);
}

TEST_F(FakeOrder, AnotherThreadMayDoSoWhileTheHostFunctionWaitsForIt) {
  std::promise<void> written;
  std::future<void> future = written.get_future();
  driver.copy(host, device, bytes, a);
  const auto before = rig.mark(a);
  driver.launch_host(
      a, [](void* argument) { static_cast<std::future<void>*>(argument)->wait(); }, &future);
  driver.copy(device, host, bytes, a);
  driver.event_synchronize(before);
  driver.host_write(host, bytes);
  host[0] = 9;
  EXPECT_TRUE(driver.violations().empty());
  written.set_value();
  driver.stream_synchronize(a);
  EXPECT_EQ(device[0], 9);
}

TEST_F(FakeOrder, DefaultStreamsAreWrongUnlessTheCallerPassedThem) {
  for (const auto stream :
       {cuda::StreamHandle{nullptr}, cuda::legacy_stream, cuda::per_thread_stream}) {
    Rig fresh;
    std::uint8_t* memory = fresh.memory(16);
    EXPECT_EQ(fresh.driver.fill(memory, 1, 16, stream), invalid_handle);
    EXPECT_TRUE(only_violation(fresh.driver, "which the caller did not pass"));
    fresh.driver.allow_stream(stream);
    EXPECT_EQ(fresh.driver.fill(memory, 1, 16, stream), success);
    EXPECT_EQ(fresh.driver.violations().size(), 1U);
  }
}

TEST_F(FakeOrder, ThePerThreadStreamOfAnotherThreadIsAnotherStream) {
  driver.allow_stream(cuda::per_thread_stream);
  std::thread([&] { driver.fill(device, 1, bytes, cuda::per_thread_stream); }).join();
  EXPECT_TRUE(only_violation(driver, "on another device or thread"));
}

TEST_F(FakeOrder, HandlesMustBeStreamsAndEvents) {
  const auto check = [&](std::size_t expected, std::string_view text, cuda::Status status) {
    EXPECT_EQ(status, invalid_handle) << text;
    ASSERT_EQ(driver.violations().size(), expected);
    EXPECT_NE(driver.violations().back().find(text), std::string::npos)
        << driver.violations().back();
  };
  int not_a_stream = 0;
  check(1, "not a stream", driver.stream_synchronize(&not_a_stream));
  cuda::StreamHandle gone = nullptr;
  driver.stream_create(&gone, true);
  driver.stream_destroy(gone);
  check(2, "not a stream", driver.fill(device, 1, bytes, gone));
  check(3, "not a stream", driver.stream_destroy(gone));
  cuda::EventHandle event = nullptr;
  driver.event_create(&event, false, true);
  driver.event_destroy(event);
  check(4, "not an event", driver.event_destroy(event));
  check(5, "not an event", driver.event_record(event, a));
  check(6, "the caller's", driver.stream_destroy(driver.foreign_stream()));
}

TEST(FakeDevices, HandlesBelongToADevice) {
  Rig rig({.devices = 2});
  FakeDriver& driver = rig.driver;
  const auto first = rig.stream(0), second = rig.stream(1);
  const auto event = rig.event(0);
  std::uint8_t* memory = rig.memory(64, 0);
  std::uint8_t* peer = rig.memory(64, 1);
  // A wait may cross devices, and so may a copy.
  EXPECT_EQ(driver.event_record(event, first), success);
  EXPECT_EQ(driver.stream_wait_event(second, event), success);
  EXPECT_EQ(driver.copy(peer, memory, 64, second), success);
  EXPECT_TRUE(driver.violations().empty());
  EXPECT_EQ(driver.event_record(event, second), invalid_handle);
  EXPECT_EQ(driver.violations().size(), 1U);
  driver.fill(memory, 1, 64, second);
  EXPECT_EQ(driver.violations().size(), 2U);
  driver.set_device(0);
  EXPECT_EQ(driver.kernel(second, {}, {}, [] {}), invalid_handle);
  EXPECT_EQ(driver.violations().size(), 3U);
  driver.allow_stream(cuda::legacy_stream, 1);
  EXPECT_EQ(driver.stream_synchronize(cuda::legacy_stream), invalid_handle);
  EXPECT_EQ(driver.violations().size(), 4U);
  driver.set_device(1);
  EXPECT_EQ(driver.stream_synchronize(cuda::legacy_stream), success);
}

TEST(FakeCapture, WorkIsNotRunAndWaitingIsWrong) {
  Rig rig;
  FakeDriver& driver = rig.driver;
  const auto stream = driver.foreign_stream();
  const auto fork = rig.stream();
  std::uint8_t* memory = rig.memory(64);
  driver.set_capturing(stream, true);
  bool capturing = false;
  ASSERT_EQ(driver.stream_is_capturing(stream, &capturing), success);
  EXPECT_TRUE(capturing);
  EXPECT_EQ(driver.fill(memory, 1, 64, stream), success);
  driver.stream_wait_event(fork, rig.mark(stream));
  ASSERT_EQ(driver.stream_is_capturing(fork, &capturing), success);
  EXPECT_TRUE(capturing) << "a stream that waits for a captured event joins the capture";
  EXPECT_TRUE(driver.violations().empty());
  EXPECT_EQ(driver.stream_synchronize(stream), capture_unsupported);
  EXPECT_EQ(driver.stream_query(fork), capture_unsupported);
  EXPECT_EQ(driver.violations().size(), 2U);
  driver.set_capturing(stream, false);
  EXPECT_EQ(driver.stream_synchronize(stream), success);
  EXPECT_EQ(memory[0], 0xCD);
}

}  // namespace
}  // namespace ps::test
