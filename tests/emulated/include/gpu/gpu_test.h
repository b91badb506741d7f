// What tests of kernels share where the GPU is the fake driver, and kernels are emulated.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "emulated/block.h"
#include "fake/fake_driver.h"
#include "penstock/base/view.h"
#include "penstock/host/device.h"
#include "penstock/host/event.h"
#include "support/fake_machine.h"
#include "support/watchdog.h"

namespace ps::test {

inline constexpr std::uint8_t poison = 0xFF;

testing::AssertionResult all_are(const std::vector<std::uint8_t>& bytes, std::uint8_t value);

// Every test launches a kernel.
class GpuTest : public testing::Test {
 protected:
  GpuTest();
  ~GpuTest() override;
  void TearDown() override;

 private:
  FakeMachine machine_;
  std::uint64_t blocks_before_ = emulated::blocks_run();

 protected:
  Device gpu = machine_.gpu();
};

}  // namespace ps::test
