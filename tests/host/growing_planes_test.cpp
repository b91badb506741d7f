#include "host/growing_planes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/stepped_stream.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

using detail::GrowingPlanes;

// Waits for what a thread of the library does.
bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 20000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return false;
}

TEST(GrowingPlanes, KeepAddressesAndContentsOnTheCpu) {
  const Watchdog watchdog("KeepAddressesAndContentsOnTheCpu");
  GrowingPlanes planes(Device::cpu(), {.row_bytes = {1000, 24}, .capacity = 500, .ahead = 3});
  EXPECT_EQ(planes.mapped_bytes(), 0U);
  std::byte* const first = planes.plane(0);
  std::byte* const second = planes.plane(1);
  EXPECT_GE(second - first, 500 * 1000);
  for (std::size_t rows = 1; rows <= 500; ++rows) {
    planes.need(rows);
    EXPECT_GE(planes.mapped_rows(), rows);
    std::memset(first + (rows - 1) * 1000, static_cast<int>(rows), 1000);
    std::memset(second + (rows - 1) * 24, static_cast<int>(rows + 1), 24);
  }
  EXPECT_EQ(planes.plane(0), first);
  for (std::size_t row = 0; row < 500; ++row) {
    EXPECT_EQ(first[row * 1000 + row], static_cast<std::byte>(row + 1));
    EXPECT_EQ(second[row * 24 + 23], static_cast<std::byte>(row + 2));
  }
}

// The thread maps rows before they are needed, and then need() does not wait.
TEST(GrowingPlanes, AreMappedAhead) {
  const Watchdog watchdog("AreMappedAhead");
  GrowingPlanes planes(Device::cpu(), {.row_bytes = {4096, 4096}, .capacity = 1000, .ahead = 50});
  planes.need(1);
  EXPECT_EQ(planes.waits(), 1U);
  ASSERT_TRUE(comes_true([&] { return planes.mapped_rows() == 51; }));
  for (std::size_t rows = 2; rows <= 200; ++rows) {
    planes.need(rows);
    ASSERT_TRUE(comes_true([&] { return planes.mapped_rows() == rows + 50; }));
  }
  EXPECT_EQ(planes.waits(), 1U);
  planes.need(1000);
  EXPECT_EQ(planes.mapped_rows(), 1000U);
}

TEST(GrowingPlanes, ShrinkWhenTheWorkIsDone) {
  const Watchdog watchdog("ShrinkWhenTheWorkIsDone");
  GrowingPlanes planes(Device::cpu(), {.row_bytes = {4096}, .capacity = 100});
  SteppedStream work;
  planes.need(80);
  planes.use(work.stream());
  work.enqueue();
  planes.shrink(10);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(planes.mapped_rows(), 80U) << "unmapped under the work";
  work.complete_all();
  ASSERT_TRUE(comes_true([&] { return planes.mapped_rows() == 10; }));
  planes.need(30);
  std::memset(planes.plane(0), 1, 30 * 4096);
}

TEST(GrowingPlanes, WhatIsNeededAgainIsNotUnmapped) {
  const Watchdog watchdog("WhatIsNeededAgainIsNotUnmapped");
  GrowingPlanes planes(Device::cpu(), {.row_bytes = {4096}, .capacity = 100});
  SteppedStream work;
  planes.need(80);
  planes.plane(0)[59 * 4096] = std::byte{7};
  planes.use(work.stream());
  work.enqueue();
  planes.shrink(10);
  planes.need(60);
  work.complete_all();
  ASSERT_TRUE(comes_true([&] { return planes.mapped_rows() == 60; }));
  EXPECT_EQ(planes.plane(0)[59 * 4096], std::byte{7});
}

// Work that shrink() does not wait for may use them, also if fewer rows are needed later.
TEST(GrowingPlanes, WhatWasNeededAgainIsNotUnmapped) {
  const Watchdog watchdog("WhatWasNeededAgainIsNotUnmapped");
  GrowingPlanes planes(Device::cpu(), {.row_bytes = {4096}, .capacity = 100});
  SteppedStream work;
  planes.need(80);
  planes.use(work.stream());
  work.enqueue();
  planes.shrink(10);
  planes.need(60);  // for work that is enqueued now
  planes.need(5);
  work.complete_all();
  ASSERT_TRUE(comes_true([&] { return planes.mapped_rows() == 60; }));
  planes.shrink(5);
  ASSERT_TRUE(comes_true([&] { return planes.mapped_rows() == 5; }));
}

class GrowingPlanesGpu : public testing::Test {
 protected:
  static constexpr std::size_t page = 64 * KiB;

  void TearDown() override { EXPECT_TRUE(is_clean(driver)); }

  void write(const GrowingPlanes& planes, std::size_t plane, std::size_t row, std::size_t row_bytes,
             const Stream& stream) const {
    fill({planes.plane(plane) + row * row_bytes, row_bytes, gpu.place()}, 1, stream);
  }

  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
  FakeMachine machine{{.device_bytes = 4 * MiB, .granularity = page}};
  FakeDriver& driver = machine.driver();
  Device gpu = machine.gpu();
};

// Steps that write rows and now and then drop rows and give their memory back, while work of
// several streams is in flight. The fake driver complains about memory that goes too early.
TEST_F(GrowingPlanesGpu, GrowAndShrinkUnderWork) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    const std::size_t row_bytes[] = {1 + random() % 20000, 1 + random() % 20000};
    GrowingPlanes planes(gpu, {.row_bytes = {row_bytes[0], row_bytes[1]},
                               .capacity = 80,
                               .block_bytes = random() % (2 * page),
                               .ahead = random() % 10});
    EXPECT_EQ(planes.block_bytes() % page, 0U);
    const Stream streams[] = {Stream(gpu), Stream(gpu)};
    std::size_t rows = 0;
    for (int step = 0; step < 100; ++step) {
      if (random() % 8 == 0 || rows == 80) {
        rows = random() % (rows + 1);
        if (random() % 2 == 0) planes.shrink(rows);
      }
      planes.need(++rows);
      for (const std::size_t plane : {0, 1}) {
        if (random() % 3 == 0) continue;
        planes.use(streams[plane]);
        write(planes, plane, rows - 1, row_bytes[plane], streams[plane]);
      }
    }
  }
}

TEST_F(GrowingPlanesGpu, RunningOutNamesTheMemoryAndCanBeTriedAgain) {
  std::optional<DeviceBuffer> other(std::in_place, gpu, 3 * MiB);
  GrowingPlanes planes(gpu, {.row_bytes = {page}, .capacity = 100, .ahead = 10});
  planes.need(8);  // two of the ten rows ahead do not fit, which is no error
  ASSERT_TRUE(comes_true([&] { return planes.mapped_rows() == 16; }));
  for (int i = 0; i < 3; ++i) {
    try {
      planes.need(20);
      FAIL();
    } catch (const OutOfMemory& error) {
      EXPECT_NE(std::string(error.what()).find("cuda:0"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(planes.mapped_rows(), 16U);
  GrowingPlanes second(gpu, {.row_bytes = {page / 2, page / 4}, .capacity = 100});
  EXPECT_THROW(second.need(1), OutOfMemory);
  EXPECT_EQ(second.mapped_bytes(), 0U);
  const std::uint64_t attempts = driver.calls("memory_create");
  for (std::size_t rows = 9; rows <= 16; ++rows) planes.need(rows);
  EXPECT_LE(driver.calls("memory_create"), attempts + 1) << "tried at every step";
  other.reset();
  planes.need(20);
  ASSERT_TRUE(comes_true([&] { return planes.mapped_rows() == 30; }));
}

// Whichever call fails, need() either throws or does what it promises.
TEST_F(GrowingPlanesGpu, ACallThatFailsLeavesNothingBehind) {
  int thrown = 0;
  for (std::uint64_t n = 1; n <= 40; ++n) {
    watchdog.step("call " + std::to_string(n));
    driver.fail_call(n, cuda::memory_allocation);
    const auto attempt = [&] {
      const Stream stream(gpu);
      GrowingPlanes planes(gpu, {.row_bytes = {page, page / 2}, .capacity = 20, .ahead = 2});
      planes.use(stream);
      for (std::size_t rows = 1; rows <= 6; ++rows) {
        planes.need(rows);
        write(planes, 0, rows - 1, page, stream);
        write(planes, 1, rows - 1, page / 2, stream);
      }
      planes.shrink(3);
      planes.need(9);
      write(planes, 0, 8, page, stream);
    };
    try {
      attempt();
    } catch (const std::exception&) {
      ++thrown;
    }
    driver.disarm();
  }
  // Those of the constructors and of the first need() at least. Rows ahead are tried again.
  EXPECT_GT(thrown, 5);
}

TEST_F(GrowingPlanesGpu, GrowWhileAStreamIsCaptured) {
  const Stream stream(gpu);
  GrowingPlanes planes(gpu, {.row_bytes = {page}, .capacity = 20, .ahead = 4});
  driver.set_capturing(stream.native(), true);
  planes.need(2);
  ASSERT_TRUE(comes_true([&] { return planes.mapped_rows() == 6; }));
  planes.use(stream);
  EXPECT_THROW(planes.shrink(1), Unsupported);
  EXPECT_EQ(planes.mapped_rows(), 6U);
  driver.set_capturing(stream.native(), false);
}

TEST_F(GrowingPlanesGpu, ShrinkWaitsForStreamsThatAreGone) {
  GrowingPlanes planes(gpu, {.row_bytes = {page}, .capacity = 20});
  planes.need(10);
  {
    const Stream dropped(gpu);
    planes.use(dropped);
    write(planes, 0, 9, page, dropped);
  }
  planes.shrink(1);
  ASSERT_TRUE(comes_true([&] { return planes.mapped_rows() == 1; }));
}

TEST(GrowingPlanesRefused, WithoutVirtualMemory) {
  FakeMachine machine({.virtual_memory = false});
  EXPECT_THROW(GrowingPlanes(machine.gpu(), {.row_bytes = {1}, .capacity = 1}), Unsupported);
  EXPECT_THROW(GrowingPlanes(Device::cpu(), {.row_bytes = {2}, .capacity = ~std::size_t{0}}),
               InvalidArgument);
  EXPECT_TRUE(is_clean(machine.driver()));
}

}  // namespace
}  // namespace ps::test
