// A process that ends in the middle of a run ends at once, and with the code it asked for.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "support/fake_machine.h"
#include "support/tiny_pipeline.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

class ExitDeathTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

INSTANTIATE_TEST_SUITE_P(Devices, ExitDeathTest, testing::Values(false, true),
                         [](const auto& tested) {
                           return std::string(tested.param ? "FakeGpu" : "Cpu");
                         });

// Starts an endless run on another thread and ends the process once it is under way. The watchdog
// aborts a process that does not end. Nothing here is destroyed: the run goes on while exit() runs.
void end_in_mid_run(bool gpu, void (*end)()) {
  static auto* const watchdog = new Watchdog("end_in_mid_run", std::chrono::seconds(30));
  static auto* const machine = new FakeMachine;
  static auto* const tiny =
      new TinyPipeline(gpu ? machine->gpu() : Device::cpu(),
                       {.driver = gpu ? &machine->driver() : nullptr, .host_calls = true});
  static auto* const reached = new std::atomic<std::uint64_t>{0};
  watchdog->step("end_in_mid_run");
  tiny->hook = [](const std::string&, Item& item) { *reached = item.index(); };
  std::thread([] { tiny->run({.items = UINT64_MAX}); }).detach();
  while (*reached < 20) std::this_thread::yield();
  end();
}

TEST_P(ExitDeathTest, ExitEndsTheProcess) {
  EXPECT_EXIT(end_in_mid_run(GetParam(), [] { std::exit(0); }), testing::ExitedWithCode(0), "");
}

TEST_P(ExitDeathTest, QuickExitEndsTheProcess) {
  EXPECT_EXIT(end_in_mid_run(GetParam(), [] { std::quick_exit(3); }), testing::ExitedWithCode(3),
              "");
}

TEST_P(ExitDeathTest, InterruptEndsTheProcess) {
  EXPECT_EXIT(end_in_mid_run(GetParam(), [] { std::raise(SIGINT); }),
              testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace ps::test
