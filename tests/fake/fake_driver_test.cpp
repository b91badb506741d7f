// The fake driver does what CUDA does: work is asynchronous, ordered by streams and events.
#include "fake/fake_driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "fake/rig.h"
#include "support/expect_clean.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

using cuda::success;

TEST(FakeDriver, AWaitedForRoundTripIsCleanAndRight) {
  Rig rig;
  FakeDriver& driver = rig.driver;
  constexpr std::size_t bytes = 1000;
  std::uint8_t* in = rig.pinned(bytes);
  std::uint8_t* out = rig.pinned(bytes);
  std::uint8_t* work = rig.memory(bytes);
  const auto up = rig.stream(), compute = rig.stream(), down = rig.stream();
  for (std::uint8_t round = 1; round <= 20; ++round) {
    driver.host_write(in, bytes);
    std::fill_n(in, bytes, round);
    ASSERT_EQ(driver.copy(work, in, bytes, up), success);
    ASSERT_EQ(driver.stream_wait_event(compute, rig.mark(up)), success);
    ASSERT_EQ(driver.kernel(compute, {{work, bytes}}, {{work, bytes}},
                            [=] {
                              for (std::size_t i = 0; i < bytes; ++i) work[i] += 100;
                            }),
              success);
    ASSERT_EQ(driver.stream_wait_event(down, rig.mark(compute)), success);
    ASSERT_EQ(driver.copy(out, work, bytes, down), success);
    ASSERT_EQ(driver.event_synchronize(rig.mark(down)), success);
    driver.host_read(out, bytes);
    EXPECT_EQ(std::count(out, out + bytes, round + 100), static_cast<std::ptrdiff_t>(bytes));
  }
  EXPECT_TRUE(driver.violations().empty());
}

TEST(FakeDriver, WorkRunsLaterThanTheCall) {
  Rig rig;
  FakeDriver& driver = rig.driver;
  const auto stream = rig.stream();
  std::promise<void> go;
  std::atomic<bool> ran{false};
  ASSERT_EQ(driver.kernel(stream, {}, {},
                          [&] {
                            go.get_future().wait();
                            ran = true;
                          }),
            success);
  EXPECT_EQ(driver.stream_query(stream), cuda::not_ready);
  EXPECT_EQ(driver.last_error(), cuda::not_ready);
  EXPECT_FALSE(ran);
  go.set_value();
  ASSERT_EQ(driver.stream_synchronize(stream), success);
  EXPECT_TRUE(ran);
  EXPECT_EQ(driver.stream_query(stream), success);
}

TEST(FakeDriver, AnEventKeepsThePointOfItsWaits) {
  Rig rig;
  FakeDriver& driver = rig.driver;
  const auto first = rig.stream(), second = rig.stream();
  const auto event = rig.event();
  EXPECT_EQ(driver.event_query(event), success) << "an event that was never recorded is complete";
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  ASSERT_EQ(driver.event_record(event, first), success);
  ASSERT_EQ(driver.stream_wait_event(second, event), success);
  ASSERT_EQ(driver.kernel(first, {}, {}, [gone] { gone.wait(); }), success);
  ASSERT_EQ(driver.event_record(event, first), success);
  // The wait was enqueued before the event moved behind the blocked kernel.
  EXPECT_EQ(driver.stream_synchronize(second), success);
  EXPECT_EQ(driver.event_query(event), cuda::not_ready);
  driver.last_error();
  go.set_value();
  EXPECT_EQ(driver.event_synchronize(event), success);
}

TEST(FakeDriver, EventsMeasureTime) {
  Rig rig;
  FakeDriver& driver = rig.driver;
  const auto stream = rig.stream();
  const auto start = rig.event(0, true), stop = rig.event(0, true), untimed = rig.event();
  float ms = -1;
  EXPECT_EQ(driver.event_elapsed_ms(&ms, start, stop), invalid_handle) << "never recorded";
  driver.event_record(start, stream);
  driver.kernel(stream, {}, {}, [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  driver.event_record(stop, stream);
  driver.event_record(untimed, stream);
  EXPECT_EQ(driver.event_elapsed_ms(&ms, start, stop), cuda::not_ready);
  ASSERT_EQ(driver.stream_synchronize(stream), success);
  EXPECT_EQ(driver.event_elapsed_ms(&ms, start, stop), success);
  EXPECT_GE(ms, 5.0F);
  driver.kernel(stream, {}, {}, [&] { driver.pass(std::chrono::hours(1)); });
  driver.event_record(stop, stream);
  ASSERT_EQ(driver.stream_synchronize(stream), success);
  EXPECT_EQ(driver.event_elapsed_ms(&ms, start, stop), success);
  EXPECT_GE(ms, 3.6e6F);
  EXPECT_EQ(driver.event_elapsed_ms(&ms, start, untimed), invalid_handle);
  driver.last_error();
}

TEST(FakeDriver, HostFunctionsRunInStreamOrderAndMayNotCallBack) {
  Rig rig;
  FakeDriver& driver = rig.driver;
  const auto stream = rig.stream();
  std::uint8_t* data = rig.pinned(64);
  driver.fill(data, 7, 64, stream);
  struct Seen {
    FakeDriver* driver;
    std::uint8_t* data;
    int value = 0;
    cuda::Status status = success;
  } seen{&driver, data};
  driver.launch_host(
      stream,
      [](void* argument) {
        auto& mine = *static_cast<Seen*>(argument);
        mine.driver->host_read(mine.data, 64);
        mine.value = mine.data[63];
        int count = 0;
        mine.status = mine.driver->device_count(&count);
      },
      &seen);
  driver.fill(data, 8, 64, stream);
  ASSERT_EQ(driver.stream_synchronize(stream), success);
  EXPECT_EQ(seen.value, 7);
  EXPECT_EQ(seen.status, not_permitted);
  EXPECT_TRUE(only_violation(driver, "inside a host function"));
}

TEST(FakeDriver, AFlagHoldsTheStreamUntilTheHostRaisesIt) {
  const Watchdog watchdog("FakeDriver.AFlagHoldsTheStreamUntilTheHostRaisesIt");
  Rig rig;
  FakeDriver& driver = rig.driver;
  const auto stream = rig.stream();
  std::uint8_t* in = rig.pinned(64);
  std::uint8_t* out = rig.memory(64);
  auto* flag = reinterpret_cast<std::uint32_t*>(rig.pinned(4));
  *flag = 0xFFFFFFFF;  // the compare wraps: -1 is below 1
  const auto before = rig.mark(stream);
  ASSERT_EQ(driver.stream_wait_value(stream, flag, 1), success);
  ASSERT_EQ(driver.copy(out, in, 64, stream), success);
  ASSERT_EQ(driver.event_synchronize(before), success);
  // The copy is enqueued but held back: the host may still write what it reads.
  driver.host_write(in, 64);
  std::fill_n(in, 64, std::uint8_t{3});
  EXPECT_EQ(driver.stream_query(stream), cuda::not_ready);
  driver.last_error();
  std::atomic_ref<std::uint32_t>(*flag).store(1, std::memory_order_release);
  EXPECT_TRUE(driver.violations().empty());
  // From here on the copy may run.
  driver.host_write(in, 64);
  EXPECT_TRUE(only_violation(driver, "the host writes memory without waiting for copy"));
  ASSERT_EQ(driver.stream_synchronize(stream), success);
  EXPECT_EQ(out[63], 3);
}

TEST(FakeDriver, AStreamRaisesAFlagAfterItsWork) {
  const Watchdog watchdog("FakeDriver.AStreamRaisesAFlagAfterItsWork");
  Rig rig;
  FakeDriver& driver = rig.driver;
  const auto writer = rig.stream(), waiter = rig.stream();
  std::uint8_t* in = rig.pinned(64);
  std::uint8_t* out = rig.memory(64);
  auto* flag = reinterpret_cast<std::uint32_t*>(rig.pinned(4));
  *flag = 0;
  std::fill_n(in, 64, std::uint8_t{3});
  std::uint8_t seen = 0;
  ASSERT_EQ(driver.stream_wait_value(waiter, flag, 7), success);
  ASSERT_EQ(driver.kernel(waiter, {}, {}, [&] { seen = out[63]; }), success);
  ASSERT_EQ(driver.copy(out, in, 64, writer), success);
  ASSERT_EQ(driver.stream_write_value(writer, flag, 7), success);
  ASSERT_EQ(driver.stream_synchronize(waiter), success);
  EXPECT_EQ(seen, 3);
  ASSERT_EQ(driver.stream_synchronize(writer), success);
  EXPECT_TRUE(driver.violations().empty());
  std::uint32_t pageable = 0;
  EXPECT_EQ(driver.stream_write_value(writer, &pageable, 1), invalid_value);
  EXPECT_TRUE(only_violation(driver, "not page-locked"));
}

TEST(FakeDriver, DestroyingADriverDropsWhatIsBlocked) {
  const Watchdog watchdog("FakeDriver.DestroyingADriverDropsWhatIsBlocked");
  auto driver = std::make_unique<FakeDriver>();
  cuda::StreamHandle held = nullptr, behind = nullptr;
  cuda::EventHandle event = nullptr;
  void* flag = nullptr;
  driver->stream_create(&held, false);
  driver->stream_create(&behind, false);
  driver->event_create(&event, false, true);
  driver->host_alloc(&flag, 4);
  *static_cast<std::uint32_t*>(flag) = 0;
  driver->stream_wait_value(held, static_cast<std::uint32_t*>(flag), 1);
  driver->event_record(event, held);
  driver->stream_wait_event(behind, event);
  EXPECT_EQ(driver->outstanding(), (Outstanding{.streams = 2, .events = 1, .pinned = 1}));
  driver.reset();
}

TEST(FakeDriver, ADestroyedStreamStillFinishesItsWork) {
  FakeDriver driver;
  cuda::StreamHandle stream = nullptr;
  driver.stream_create(&stream, false);
  std::promise<void> ran;
  driver.kernel(stream, {}, {}, [&] { ran.set_value(); });
  ASSERT_EQ(driver.stream_destroy(stream), success);
  ran.get_future().wait();
  EXPECT_EQ(driver.device_synchronize(), success);
  EXPECT_TRUE(is_clean(driver));
}

TEST(FakeDriver, PretendsToBeTheMachineAskedFor) {
  FakeDriver none({.devices = 0, .startup = no_device});
  int count = -1;
  EXPECT_EQ(none.device_count(&count), no_device);
  FakeDriver old({.devices = 0, .startup = insufficient_driver, .driver_version = 11040});
  EXPECT_EQ(old.device_count(&count), insufficient_driver);
  EXPECT_EQ(old.driver_version(&count), success);
  EXPECT_EQ(count, 11040);
  FakeDriver two({.devices = 2, .memory_pools = false, .adjust = [](int device, auto& properties) {
                    properties.major = device == 0 ? 9 : 7;
                  }});
  ASSERT_EQ(two.device_count(&count), success);
  EXPECT_EQ(count, 2);
  cuda::Properties properties;
  ASSERT_EQ(two.properties(1, &properties), success);
  EXPECT_EQ(properties.major, 7);
  EXPECT_FALSE(properties.memory_pools);
  EXPECT_TRUE(properties.virtual_memory);
  EXPECT_EQ(two.properties(2, &properties), invalid_device);
  two.last_error();
  EXPECT_TRUE(is_clean(two));
}

}  // namespace
}  // namespace ps::test
