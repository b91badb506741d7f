// A run is cancelled at a thousand random points, on the CPU and on the fake GPU.
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>

#include "penstock/base/error.h"
#include "support/cancel_somewhere.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/tiny_pipeline.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

constexpr unsigned runs = 1000;
constexpr unsigned runs_per_pipeline = 10;

class Cancellation : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Devices, Cancellation, testing::Values(false, true),
                         [](const auto& tested) {
                           return std::string(tested.param ? "FakeGpu" : "Cpu");
                         });

TEST_P(Cancellation, AtRandomPoints) {
  const bool gpu = GetParam();
  Watchdog watchdog("Cancellation.AtRandomPoints");
  std::optional<FakeMachine> machine;
  std::optional<TinyPipeline> tiny;
  for (unsigned seed = 1; seed <= runs; ++seed) {
    const std::string here = "seed " + std::to_string(seed);
    watchdog.step(here);
    std::minstd_rand random(seed);
    if (seed % runs_per_pipeline == 1) {
      tiny.reset();
      if (machine) {
        ASSERT_TRUE(is_clean(machine->driver())) << "before " << here;
      }
      machine.reset();
      if (gpu) {
        machine.emplace(
            FakeOptions{.stream_wait_value = random() % 2 == 0, .seed = seed, .max_delay_us = 20});
      }
      tiny.emplace(gpu ? machine->gpu() : Device::cpu(),
                   TinyOptions{.depth = 1 + random() % 4,
                               .driver = gpu ? &machine->driver() : nullptr,
                               .host_stages = random() % 3 != 0,
                               .host_calls = random() % 4 == 0});
    }
    try {
      cancel_somewhere(*tiny, random);
    } catch (const std::exception& error) {
      ADD_FAILURE() << here << ": " << error.what();
    }
    tiny->run_well(3);
    ASSERT_FALSE(HasFailure()) << here;
  }
  tiny.reset();
  if (machine) {
    EXPECT_TRUE(is_clean(machine->driver()));
  }
}

TEST_P(Cancellation, ALongHostStageSeesIt) {
  const Watchdog watchdog("Cancellation.ALongHostStageSeesIt");
  FakeMachine machine;
  const Device device = GetParam() ? machine.gpu() : Device::cpu();
  TinyPipeline tiny(device, {.driver = GetParam() ? &machine.driver() : nullptr});
  std::stop_source source;
  tiny.hook = [&](const std::string& at, Item& item) {
    if (at == "read" && item.index() == 2) {
      source.request_stop();
      while (!item.stopping()) std::this_thread::yield();
    }
  };
  EXPECT_TRUE(tiny.run({.items = 10, .stop = source.get_token()}).cancelled);
}

}  // namespace
}  // namespace ps::test
