// Every call that can fail does, one after the other, over a whole run of a pipeline. Whatever
// happens: an error with its cause or a right result, nothing leaked, nothing touched out of order,
// no hang, and the same pipeline runs again unless the device is lost.
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/pipeline.h"
#include "support/expect_clean.h"
#include "support/failure_of.h"
#include "support/fake_machine.h"
#include "support/tiny_pipeline.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

// A few items, of which every call fails; and with one slot per ring, whose window holds 16 items,
// enough to fill the window, wait, and fill it again. Of their calls, a sample fails.
constexpr std::uint64_t few = 4, several_windows = 40;

struct Variant {
  const char* name;
  std::uint64_t items = few;
  bool stream_wait_value = true;
  bool host_calls = false;
  bool borrowed = false;
  bool host_stages = true;
  Waiting waiting = Waiting::poll;

  friend std::ostream& operator<<(std::ostream& out, const Variant& variant) {
    return out << variant.name;
  }
};

class PipelineFaults : public testing::TestWithParam<Variant> {
 protected:
  std::uint64_t items() const { return GetParam().items; }
  // From one call that fails to the next. A prime, so that every call of an item has its turn.
  std::uint64_t stride(std::uint64_t of_long_runs) const {
    return items() == few ? 1 : of_long_runs;
  }
  FakeOptions fake_options() const {
    return {.stream_wait_value = GetParam().stream_wait_value, .max_delay_us = 30};
  }
  // The streams a caller would pass; none where the pipeline makes its own.
  std::vector<cuda::StreamHandle> callers_streams(FakeMachine& machine) const {
    std::vector<cuda::StreamHandle> handles(GetParam().borrowed ? 3 : 0);
    for (auto& handle : handles) handle = machine.driver().foreign_stream();
    return handles;
  }
  TinyOptions tiny_options(FakeMachine& machine,
                           const std::vector<cuda::StreamHandle>& handles) const {
    TinyOptions options{.depth = items() == few ? 2U : 1U,
                        .driver = &machine.driver(),
                        .host_stages = GetParam().host_stages,
                        .host_calls = GetParam().host_calls,
                        .waiting = GetParam().waiting};
    for (const auto handle : handles) {
      options.streams.push_back(borrow_native(machine.gpu(), handle));
    }
    return options;
  }
  void step(std::uint64_t n) {
    here = std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) +
           ", fault at " + std::to_string(n);
    watchdog.step(here);
  }

  std::string here;
  Watchdog watchdog{"PipelineFaults"};
};

INSTANTIATE_TEST_SUITE_P(
    Pipelines, PipelineFaults,
    testing::Values(
        Variant{.name = "OwnStreams"}, Variant{.name = "CallersStreams", .borrowed = true},
        Variant{.name = "HostCalls", .host_calls = true, .waiting = Waiting::block},
        Variant{.name = "HostCallsByCallback", .stream_wait_value = false, .host_calls = true},
        Variant{.name = "DeviceOnly", .host_stages = false},
        Variant{.name = "SeveralWindows", .items = several_windows},
        Variant{.name = "SeveralWindowsWithHostCalls",
                .items = several_windows,
                .host_calls = true,
                .borrowed = true},
        Variant{.name = "SeveralWindowsDeviceOnly", .items = several_windows, .host_stages = false},
        Variant{.name = "SeveralWindowsDeviceOnlyBlocking",
                .items = several_windows,
                .host_stages = false,
                .waiting = Waiting::block},
        Variant{.name = "DeviceOnlyOnCallersStreams",
                .host_calls = true,
                .borrowed = true,
                .host_stages = false,
                .waiting = Waiting::block}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(PipelineFaults, AnAllocationFails) {
  FakeMachine machine(fake_options());
  FakeDriver& driver = machine.driver();
  const auto streams = callers_streams(machine);
  bool struck = true;
  for (std::uint64_t n = 1; struck; n += stride(3)) {
    step(n);
    {
      const TinyOptions options = tiny_options(machine, streams);
      TinyPipeline tiny(machine.gpu(), options);
      driver.fail_call(n, cuda::memory_allocation, allocating_calls);
      const auto failure = failure_of([&] { tiny.run({.items = items()}); });
      struck = driver.fault_struck();
      driver.disarm();
      EXPECT_EQ(struck, failure != nullptr) << here;
      if (failure) {
        EXPECT_TRUE(is<OutOfMemory>(failure)) << here << ": " << text(failure);
      }
      tiny.run_well(items());
    }
    ASSERT_TRUE(is_clean(driver)) << here;
  }
}

TEST_P(PipelineFaults, AnyCallFails) {
  FakeMachine machine(fake_options());
  FakeDriver& driver = machine.driver();
  const auto streams = callers_streams(machine);
  bool struck = true;
  for (std::uint64_t n = 1; struck; n += stride(61)) {
    step(n);
    {
      const TinyOptions options = tiny_options(machine, streams);
      driver.fail_call(n, unknown_error);
      std::optional<TinyPipeline> tiny;
      const auto failure = failure_of([&] {
        tiny.emplace(machine.gpu(), options);
        tiny->run({.items = items()});
      });
      struck = driver.fault_struck();
      driver.disarm();
      if (failure) {
        EXPECT_TRUE(struck) << here << ": " << text(failure);
        EXPECT_TRUE(is<DeviceError>(failure)) << here << ": " << text(failure);
      }
      if (tiny) tiny->run_well(items());
    }
    ASSERT_TRUE(is_clean(driver)) << here;
  }
}

TEST_P(PipelineFaults, ACallOfTheEndFails) {
  FakeMachine machine(fake_options());
  FakeDriver& driver = machine.driver();
  const auto streams = callers_streams(machine);
  bool struck = true;
  for (std::uint64_t n = 1; struck; n += stride(3)) {
    step(n);
    {
      const TinyOptions options = tiny_options(machine, streams);
      TinyPipeline tiny(machine.gpu(), options);
      tiny.run_well(items());
      driver.fail_call(n, unknown_error);
    }  // destructors meet the fault
    ASSERT_TRUE(is_clean(driver)) << here;
    struck = driver.fault_struck();
    driver.disarm();
  }
}

TEST_P(PipelineFaults, TheDeviceIsLostAtAnyCall) {
  bool struck = true;
  for (std::uint64_t n = 1; struck; n += stride(61)) {
    step(n);
    FakeMachine machine(fake_options());
    FakeDriver& driver = machine.driver();
    const auto streams = callers_streams(machine);
    {
      const TinyOptions options = tiny_options(machine, streams);
      TinyPipeline tiny(machine.gpu(), options);
      driver.lose_device_at(n);
      const auto failure = failure_of([&] { tiny.run({.items = items()}); });
      struck = driver.fault_struck();
      if (failure) {
        EXPECT_TRUE(struck) << here << ": " << text(failure);
        EXPECT_TRUE(is<DeviceError>(failure)) << here << ": " << text(failure);
        const auto again = failure_of([&] { tiny.run({.items = items()}); });
        EXPECT_TRUE(again && is<DeviceLost>(again)) << here;
      }
    }
    ASSERT_TRUE(is_clean_after_loss(driver)) << here;
  }
}

TEST_P(PipelineFaults, APieceOfWorkFails) {
  bool struck = true;
  for (std::uint64_t n = 1; struck; n += stride(7)) {
    step(n);
    FakeMachine machine(fake_options());
    FakeDriver& driver = machine.driver();
    const auto streams = callers_streams(machine);
    {
      const TinyOptions options = tiny_options(machine, streams);
      TinyPipeline tiny(machine.gpu(), options);
      driver.fail_work(n, launch_failure);
      const auto failure = failure_of([&] { tiny.run({.items = items()}); });
      struck = driver.fault_struck();
      ASSERT_EQ(struck, failure != nullptr) << here;
      if (failure) {
        EXPECT_TRUE(is<DeviceError>(failure)) << here << ": " << text(failure);
        EXPECT_NE(text(failure).find("cudaErrorLaunchFailure"), std::string::npos)
            << here << ": " << text(failure);
      }
    }
    ASSERT_TRUE(is_clean_after_loss(driver)) << here;
  }
}

// The same on both kinds of device from here on.
class StageFaults : public testing::TestWithParam<bool> {
 protected:
  // At the edges of a window of 16 items, and in between.
  static constexpr std::uint64_t places[] = {0, 1, 7, 8, 15, 16, 17, 24, 33, several_windows - 1};
};

INSTANTIATE_TEST_SUITE_P(Devices, StageFaults, testing::Values(false, true),
                         [](const auto& tested) {
                           return std::string(tested.param ? "FakeGpu" : "Cpu");
                         });

TEST_P(StageFaults, AnyStageThrowsAtAnyItem) {
  Watchdog watchdog("StageFaults.AnyStageThrowsAtAnyItem");
  FakeMachine machine({.max_delay_us = 30});
  FakeDriver& driver = machine.driver();
  {
    const Device device = GetParam() ? machine.gpu() : Device::cpu();
    TinyPipeline tiny(device, {.depth = 1, .driver = GetParam() ? &driver : nullptr});
    for (const std::string& stage : TinyPipeline::stages) {
      for (const std::uint64_t item : places) {
        const std::string here = stage + ", item " + std::to_string(item);
        watchdog.step(here);
        tiny.hook = [&](const std::string& at, Item& now) {
          if (at == stage && now.index() == item) throw std::domain_error("thrown by " + here);
        };
        try {
          tiny.run({.items = several_windows});
          ADD_FAILURE() << here << " was not reported";
        } catch (const PipelineError& error) {
          EXPECT_EQ(error.stage(), stage);
          EXPECT_EQ(error.item(), item);
          EXPECT_TRUE(is<std::domain_error>(error.cause()));
          EXPECT_NE(std::string(error.what()).find("thrown by " + here), std::string::npos);
        }
        tiny.hook = nullptr;
        tiny.run_well(several_windows);
      }
    }
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_P(StageFaults, AHostFunctionThrowsAtAnyItem) {
  Watchdog watchdog("StageFaults.AHostFunctionThrowsAtAnyItem");
  FakeMachine machine({.max_delay_us = 30});
  FakeDriver& driver = machine.driver();
  {
    const Device device = GetParam() ? machine.gpu() : Device::cpu();
    TinyPipeline tiny(device, {.depth = 1, .driver = GetParam() ? &driver : nullptr});
    for (const std::uint64_t item : places) {
      watchdog.step("item " + std::to_string(item));
      tiny.hook = [&](const std::string& at, Item& now) {
        if (at != "compute" || now.index() != item) return;
        now.stream().call([] { throw std::domain_error("from the stream"); });
      };
      try {
        tiny.run({.items = several_windows});
        ADD_FAILURE() << "item " << item << " was not reported";
      } catch (const PipelineError& error) {
        EXPECT_EQ(error.stage(), "compute");
        EXPECT_EQ(error.item(), item);
        EXPECT_TRUE(is<std::domain_error>(error.cause()));
      }
      tiny.hook = nullptr;
      tiny.run_well(several_windows);
    }
  }
  EXPECT_TRUE(is_clean(driver));
}

}  // namespace
}  // namespace ps::test
