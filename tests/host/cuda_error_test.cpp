// How the CUDA backend reports errors: those that pass, those that end the device, and those of the
// start.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/event.h"
#include "penstock/host/growable.h"
#include "penstock/host/pool.h"
#include "penstock/host/stream.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

TEST(CudaStart, WithoutADeviceTheCpuIsBest) {
  FakeMachine machine({.devices = 0, .startup = no_device});
  EXPECT_TRUE(Device::best() == Device::cpu());
  EXPECT_EQ(Device::all().size(), 1U);
  EXPECT_NE(Device::why_no_gpu().find("cudaErrorNoDevice"), std::string::npos)
      << Device::why_no_gpu();
  try {
    Device::cuda(0);
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("cudaErrorNoDevice"), std::string::npos);
  }
  EXPECT_TRUE(is_clean(machine.driver()));
}

TEST(CudaStart, ADriverThatIsTooOldSaysWhichVersions) {
  FakeMachine machine({.devices = 0,
                       .startup = insufficient_driver,
                       .driver_version = 11040,
                       .runtime_version = 13000});
  EXPECT_NE(Device::why_no_gpu().find("11.4"), std::string::npos) << Device::why_no_gpu();
  EXPECT_NE(Device::why_no_gpu().find("13.0"), std::string::npos) << Device::why_no_gpu();
  EXPECT_TRUE(Device::best() == Device::cpu());
  EXPECT_TRUE(is_clean(machine.driver()));
}

TEST(CudaStart, WithoutADriverTheReasonIsThat) {
  FakeMachine machine({.devices = 0, .startup = insufficient_driver, .driver_version = 0});
  EXPECT_NE(Device::why_no_gpu().find("no NVIDIA driver"), std::string::npos)
      << Device::why_no_gpu();
}

TEST(CudaStart, DevicesDescribeThemselves) {
  FakeMachine machine({.devices = 2, .adjust = [](int device, cuda::Properties& properties) {
                         properties.minor = device;
                       }});
  EXPECT_EQ(Device::all().size(), 3U);
  EXPECT_TRUE(Device::best() == Device::cuda(0));
  EXPECT_TRUE(Device::parse("cuda:1") == Device::cuda(1));
  EXPECT_EQ(Device::cuda(1).capabilities().compute_minor, 1);
  EXPECT_EQ(Device::cuda(1).name(), "cuda:1");
  EXPECT_EQ(Device::why_no_gpu(), "");
  EXPECT_THROW(Device::cuda(2), InvalidArgument);
  EXPECT_TRUE(is_clean(machine.driver()));
}

class CudaErrors : public testing::Test {
 protected:
  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
  FakeMachine machine;
  FakeDriver& driver = machine.driver();
  Device gpu = machine.gpu();
};

// Everything a user may call, each alone.
std::vector<std::pair<std::string, std::function<void()>>> every_call(const Device& gpu) {
  struct Things {
    explicit Things(const Device& gpu)
        : stream(gpu),
          event(gpu),
          start(gpu, {.timing = true}),
          stop(gpu, {.timing = true}),
          pool(gpu),
          memory(gpu, 64),
          pages(gpu, {.capacity = 1 << 20, .initial = 1}) {
      stream.record(start);
      stream.record(stop);
      stream.synchronize();
    }
    Stream stream;
    Event event, start, stop;
    Pool pool;
    DeviceBuffer memory;
    GrowableBuffer pages;
  };
  const auto t = std::make_shared<Things>(gpu);
  return {
      {"Stream", [=] { const Stream made(gpu); }},
      {"Event", [=] { const Event made(gpu); }},
      {"Pool", [=] { const Pool made(gpu); }},
      {"PinnedBuffer", [=] { const PinnedBuffer made(gpu, 8); }},
      {"DeviceBuffer", [=] { const DeviceBuffer made(gpu, 8); }},
      {"GrowableBuffer", [=] { const GrowableBuffer made(gpu, {.capacity = 8, .initial = 8}); }},
      {"capabilities", [=] { (void)gpu.capabilities(); }},
      {"Device::synchronize", [=] { gpu.synchronize(); }},
      {"record", [=] { t->stream.record(t->event); }},
      {"wait", [=] { t->stream.wait(t->event); }},
      {"Stream::synchronize", [=] { t->stream.synchronize(); }},
      {"Stream::done", [=] { (void)t->stream.done(); }},
      // What the function's own thread meets, the next synchronisation reports.
      {"call",
       [=] {
         t->stream.call([] {});
         t->stream.synchronize();
       }},
      {"notify",
       [=] {
         t->stream.notify([] {});
         t->stream.synchronize();
       }},
      {"copy", [=] { copy(t->memory.view().sub(0, 8), t->memory.view().sub(8, 8), t->stream); }},
      {"fill", [=] { fill(t->memory.view(), 1, t->stream); }},
      {"Event::synchronize", [=] { t->event.synchronize(); }},
      {"Event::done", [=] { (void)t->event.done(); }},
      {"seconds_between", [=] { (void)Event::seconds_between(t->start, t->stop); }},
      {"allocate", [=] { t->pool.free(t->pool.allocate(8, t->stream), t->stream); }},
      {"trim", [=] { t->pool.trim(); }},
      {"statistics", [=] { (void)t->pool.statistics(); }},
      {"grow", [=] { t->pages.grow(t->pages.mapped() + 1, t->stream); }},
  };
}

TEST_F(CudaErrors, AnErrorThatPassesIsReportedOnceAndClearedWhereverItStrikes) {
  for (const auto& [name, call] : every_call(gpu)) {
    int reported = 0;
    for (std::uint64_t n = 1;; ++n) {
      const std::string here = name + ", call " + std::to_string(n);
      driver.fail_call(n, unknown_error);
      try {
        call();
      } catch (const DeviceError& error) {
        ++reported;
        EXPECT_EQ(error.code(), unknown_error) << here;
        EXPECT_NE(std::string(error.what()).find("cuda:0"), std::string::npos) << error.what();
      }
      const bool struck = driver.fault_struck();
      driver.disarm();
      try {
        gpu.synchronize();
        call();
      } catch (const DeviceError& error) {
        ADD_FAILURE() << here << " is reported again: " << error.what();
      }
      EXPECT_TRUE(driver.uncleared_errors().empty()) << here;
      if (!struck) break;
    }
    EXPECT_GE(reported, 1) << name;
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(CudaErrors, ALostDeviceReportsItsFirstCauseFromEveryCall) {
  const auto calls = every_call(gpu);
  driver.lose_device_at(1, 0, launch_failure);
  try {
    gpu.synchronize();
    FAIL() << "no error";
  } catch (const DeviceLost& error) {
    FAIL() << "the first error is the cause itself: " << error.what();
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), launch_failure);
  }
  for (const auto& [name, call] : calls) {
    try {
      call();
      ADD_FAILURE() << name << " did not fail";
    } catch (const DeviceLost& error) {
      EXPECT_EQ(error.code(), launch_failure) << name;
      EXPECT_NE(std::string(error.what()).find("synchronising the device"), std::string::npos)
          << name << ": " << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << name << ": " << error.what();
    }
  }
}

TEST_F(CudaErrors, WorkThatFailsIsReportedByTheNextWait) {
  {
    const Stream stream(gpu), other(gpu);
    const Event event(gpu);
    const DeviceBuffer memory(gpu, 64);
    driver.fail_work(2, illegal_address);
    fill(memory.view(), 1, stream);
    fill(memory.view(), 2, stream);
    bool ran = false;
    try {
      // The loss may strike before these calls are made.
      stream.call([&] { ran = true; });
      stream.record(event);
      stream.synchronize();
      FAIL() << "no error";
    } catch (const DeviceError& error) {
      EXPECT_EQ(error.code(), illegal_address);
    }
    EXPECT_FALSE(ran) << "a function behind work that failed does not run";
    EXPECT_THROW(event.synchronize(), DeviceLost);
    EXPECT_THROW(fill(memory.view(), 1, other), DeviceLost);
    EXPECT_THROW(stream.call([] {}), DeviceLost);
  }
  EXPECT_TRUE(is_clean_after_loss(driver));
}

TEST(CudaLoss, AHeldStreamOfALostDeviceLetsGo) {
  for (const bool by_flag : {true, false}) {
    const Watchdog watchdog("CudaLoss.AHeldStreamOfALostDeviceLetsGo");
    FakeMachine machine({.stream_wait_value = by_flag});
    FakeDriver& driver = machine.driver();
    {
      const Stream stream(machine.gpu()), other(machine.gpu());
      const DeviceBuffer memory(machine.gpu(), 64);
      // Many functions enqueued, none of which may be lost track of when the driver drops them.
      auto captured = std::make_shared<int>(0);
      for (int i = 0; i < 20; ++i) stream.call([captured] { ++*captured; });
      driver.fail_work(1, illegal_address);
      fill(memory.view(), 1, other);
      EXPECT_THROW(other.synchronize(), DeviceError);
      EXPECT_THROW(stream.synchronize(), DeviceLost);
      EXPECT_EQ(captured.use_count(), 1) << "functions are dropped or done when this returns";
    }
    EXPECT_TRUE(is_clean_after_loss(driver));
  }
}

}  // namespace
}  // namespace ps::test
