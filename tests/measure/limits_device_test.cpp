// The link and device experiments on a driver without a GPU, which watches what they do.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <utility>

#include "fake/fake_driver.h"
#include "host/runtime.h"
#include "penstock/base/error.h"
#include "penstock/measure/limits.h"
#include "support/expect_clean.h"
#include "support/watchdog.h"

namespace ps {
namespace {

constexpr std::array device_ceilings = {Ceiling::h2d, Ceiling::d2h, Ceiling::both_ways,
                                        Ceiling::device_copy};

class DeviceLimits : public testing::Test {
 protected:
  ~DeviceLimits() override { detail::replace_driver(nullptr); }

  std::shared_ptr<test::FakeDriver> use(test::FakeOptions options) {
    options.max_delay_us = 0;
    auto driver = std::make_shared<test::FakeDriver>(std::move(options));
    detail::replace_driver(driver);
    return driver;
  }

  static LimitsOptions tiny() {
    LimitsOptions options;
    options.host = options.disk = false;
    options.pageable = false;  // the fake driver needs each such buffer registered
    options.link_bytes = options.device_bytes = 8 * MiB;
    options.seconds = 0.002;
    options.repetitions = 7;
    return options;
  }

  test::Watchdog watchdog_{"limits on a fake GPU"};
};

TEST_F(DeviceLimits, MeasuresEveryCeilingOfTheDevice) {
  const auto driver = use({});
  const Limits limits = measure_limits(Device::cuda(0), tiny());
  EXPECT_EQ(limits.rates.size(), device_ceilings.size());
  for (const Ceiling ceiling : device_ceilings) {
    const Rate* rate = limits.find(ceiling);
    ASSERT_NE(rate, nullptr) << name(ceiling);
    EXPECT_TRUE(std::isfinite(rate->bytes_per_second) && rate->bytes_per_second > 0);
    EXPECT_EQ(rate->note, "");
  }
  EXPECT_NE(limits.key.device, limits.key.cpu);
  EXPECT_TRUE(test::is_clean(*driver));
}

TEST_F(DeviceLimits, MeasuresOrdinaryMemoryToo) {
  const auto driver = use({});
  LimitsOptions options = tiny();
  options.pageable = true;
  const Limits limits = measure_limits(Device::cuda(0), options);
  EXPECT_EQ(limits.rates.size(), device_ceilings.size() + 1);
  EXPECT_NE(limits.find(Ceiling::h2d_pageable), nullptr);
  EXPECT_EQ(driver->outstanding(), test::Outstanding{});
}

TEST_F(DeviceLimits, TakesSmallerBuffersWhereMemoryIsShort) {
  const auto driver = use({.device_bytes = 40 * MiB});
  LimitsOptions options = tiny();
  options.link_bytes = options.device_bytes = 64 * MiB;
  const Limits limits = measure_limits(Device::cuda(0), options);
  ASSERT_NE(limits.find(Ceiling::device_copy), nullptr);
  for (const Ceiling ceiling : device_ceilings) {
    EXPECT_NE(limits.find(ceiling)->note.find("memory is short"), std::string::npos);
  }
  EXPECT_TRUE(test::is_clean(*driver));
}

TEST_F(DeviceLimits, TakesSmallerBuffersWhereLockingIsLimited) {
  const auto driver = use({.pinned_bytes = 20 * MiB});
  LimitsOptions options = tiny();
  options.link_bytes = 32 * MiB;
  const Limits limits = measure_limits(Device::cuda(0), options);
  ASSERT_NE(limits.find(Ceiling::h2d), nullptr);
  EXPECT_EQ(limits.find(Ceiling::h2d)->note, "with 8 MiB buffers: memory is short");
  EXPECT_TRUE(test::is_clean(*driver));
}

TEST_F(DeviceLimits, GivesUpWhereThereIsNoMemoryAtAll) {
  const auto driver = use({.pinned_bytes = 1 * MiB});
  EXPECT_THROW(measure_limits(Device::cuda(0), tiny()), OutOfMemory);
  EXPECT_TRUE(test::is_clean(*driver));
}

TEST_F(DeviceLimits, StopsBetweenRepetitions) {
  const auto driver = use({});
  for (const Ceiling at : device_ceilings) {
    std::stop_source source;
    LimitsOptions options = tiny();
    options.stop = source.get_token();
    options.progress = [&](const LimitsProgress& progress) {
      if (progress.ceiling == at) source.request_stop();
    };
    EXPECT_THROW(measure_limits(Device::cuda(0), options), Cancelled) << name(at);
    EXPECT_TRUE(test::is_clean(*driver)) << name(at);
  }
}

TEST_F(DeviceLimits, LeavesNothingBehindWhicheverCallFails) {
  for (const char* call :
       {"stream_create", "host_alloc", "device_alloc", "memory_info", "event_create",
        "event_record", "event_synchronize", "event_elapsed_ms", "stream_wait_event", "copy"}) {
    std::uint64_t n = 1;
    for (bool struck = true; struck; n += 1 + n / 2) {
      watchdog_.step(call + std::string(" fails, time ") + std::to_string(n));
      const auto driver = use({});
      const Device device = Device::cuda(0);
      driver->fail_call(n, test::invalid_value, {call});
      try {
        measure_limits(device, tiny());
      } catch (const DeviceError&) {
      }
      struck = driver->fault_struck();
      driver->disarm();
      EXPECT_TRUE(test::is_clean(*driver)) << call << " failed, time " << n;
    }
    EXPECT_GT(n, 2u) << call << " was never called";
  }
}

TEST_F(DeviceLimits, ReportsADeviceThatIsLost) {
  const auto driver = use({});
  const Device device = Device::cuda(0);
  driver->fail_work(20);
  EXPECT_THROW(measure_limits(device, tiny()), DeviceError);
  EXPECT_TRUE(test::is_clean_after_loss(*driver));
}

}  // namespace
}  // namespace ps
