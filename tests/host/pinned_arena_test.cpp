// Page-locked memory that is registered in place, in one piece or in the background.
#include "penstock/host/pinned_arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "host/huge_pages.h"
#include "host/piece_borders.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

bool is_zero(MemoryView view) {
  for (std::size_t i = 0; i < view.bytes; ++i) {
    if (view.data[i] != std::byte{0}) return false;
  }
  return true;
}

TEST(HugePages, BeginAtAHugePageAndAreZero) {
  for (const std::size_t bytes : {std::size_t{1}, 2 * MiB, 5 * MiB + 17}) {
    const detail::HugePages pages(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages.data()) % (2 * MiB), 0U);
    pages.touch(0, bytes);
    EXPECT_TRUE(is_zero({pages.data(), bytes, {}}));
    std::memset(pages.data(), 1, bytes);
  }
  EXPECT_THROW(detail::HugePages(std::size_t{1} << 60), OutOfMemory);
  EXPECT_THROW(detail::HugePages(~std::size_t{0}), InvalidArgument);
  detail::HugePages first(1), second(1);
  std::byte* data = first.data();
  second = std::move(first);
  EXPECT_EQ(second.data(), data);
  const detail::HugePages third(std::move(second));
  EXPECT_EQ(third.data(), data);
}

TEST(PieceBorders, SayHowFarACopyMayGo) {
  std::vector<std::byte> memory(100);
  const std::byte* begin = memory.data() + 20;
  EXPECT_EQ(detail::PieceBorders::before_next(begin, 80), 80U);
  {
    const detail::PieceBorders borders(begin, 50, 20);
    EXPECT_EQ(detail::PieceBorders::before_next(memory.data(), 10), 10U) << "before the arena";
    EXPECT_EQ(detail::PieceBorders::before_next(begin, 50), 20U);
    EXPECT_EQ(detail::PieceBorders::before_next(begin + 19, 31), 1U);
    EXPECT_EQ(detail::PieceBorders::before_next(begin + 20, 5), 5U);
    EXPECT_EQ(detail::PieceBorders::before_next(begin + 40, 10), 10U);
    EXPECT_EQ(detail::PieceBorders::before_next(begin + 50, 10), 10U) << "behind the arena";
  }
  EXPECT_EQ(detail::PieceBorders::before_next(begin, 80), 80U);
}

class PinnedMemory : public testing::Test {
 protected:
  static constexpr std::size_t piece = 2 * MiB;

  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
  FakeMachine machine{{.devices = 2, .device_bytes = 64 * MiB, .pinned_bytes = 64 * MiB}};
  FakeDriver& driver = machine.driver();
  Device gpu = machine.gpu();
};

TEST_F(PinnedMemory, LargeBuffersAreRegistered) {
  {
    const PinnedBuffer small(gpu, 8 * MiB - 1);
    const PinnedBuffer large(gpu, 8 * MiB + 5);
    EXPECT_EQ(driver.outstanding(), (Outstanding{.pinned = 1, .registered = 1}));
    EXPECT_EQ(large.bytes(), 8 * MiB + 5);
    EXPECT_EQ(large.view().place.memory, Memory::pinned);
    const DeviceBuffer target(gpu, large.bytes());
    const Stream stream(gpu);
    std::memset(large.view().data, 3, large.bytes());
    copy(target.view(), large.view(), stream);
    stream.synchronize();
    EXPECT_EQ(target.view().data[large.bytes() - 1], std::byte{3});
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(PinnedMemory, ABufferThatCannotBeRegisteredIsAllocated) {
  for (const cuda::Status status : {invalid_value, cuda::memory_allocation, not_supported}) {
    driver.fail_call(1, status, {"host_register"});
    {
      const PinnedBuffer large(gpu, 8 * MiB);
      EXPECT_TRUE(driver.fault_struck());
      EXPECT_EQ(driver.outstanding(), (Outstanding{.pinned = 1}));
    }
    driver.disarm();
    EXPECT_TRUE(is_clean(driver));
  }
}

TEST_F(PinnedMemory, BuffersThatDoNotFitAreRefused) {
  EXPECT_THROW(PinnedBuffer(gpu, 65 * MiB), OutOfMemory);
  EXPECT_THROW(PinnedBuffer(gpu, std::size_t{1} << 60), OutOfMemory) << "touches nothing";
  EXPECT_EQ(driver.calls("host_register"), 1U);
  EXPECT_TRUE(is_clean(driver));
}

TEST(PinnedMemoryWithoutRegistration, BuffersAreAllocated) {
  FakeMachine machine({.registered_memory = false});
  {
    const PinnedBuffer large(machine.gpu(), 8 * MiB);
    EXPECT_EQ(machine.driver().calls("host_register"), 0U);
    const PinnedArena arena(machine.gpu(), {.bytes = 1});
    EXPECT_THROW(arena.wait(1), Unsupported);
  }
  EXPECT_TRUE(is_clean(machine.driver()));
}

TEST(PinnedMemoryOfTheCpu, LargeBuffersBeginAtAHugePage) {
  const PinnedBuffer large(Device::cpu(), 8 * MiB + 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.view().data) % (2 * MiB), 0U);
  std::memset(large.view().data, 1, large.bytes());
}

TEST_F(PinnedMemory, AnArenaIsLockedPieceByPiece) {
  constexpr std::size_t bytes = 4 * piece + 100;
  {
    const PinnedArena arena(gpu, {.bytes = bytes, .piece_bytes = piece - 5});
    EXPECT_EQ(arena.bytes(), bytes);
    EXPECT_EQ(arena.piece_bytes(), piece);
    EXPECT_EQ(arena.view().bytes, bytes);
    EXPECT_EQ(arena.view().place.memory, Memory::pinned);
    EXPECT_TRUE(arena.ready(0));
    arena.wait(0);
    for (const std::size_t part : {std::size_t{1}, piece, piece + 1, bytes}) {
      arena.wait(part);
      EXPECT_TRUE(arena.ready(part));
      EXPECT_GE(arena.ready(), part);
      EXPECT_TRUE(is_zero(arena.view().sub(0, part)));
    }
    EXPECT_EQ(arena.ready(), bytes);
    EXPECT_EQ(driver.outstanding(), (Outstanding{.registered = 5}));
    EXPECT_THROW(arena.wait(bytes + 1), InvalidArgument);
    EXPECT_FALSE(arena.ready(bytes + 1));
  }
  EXPECT_TRUE(is_clean(driver));
}

// No more than what was asked for, in whole pieces, and one piece ahead.
TEST_F(PinnedMemory, AnArenaOnDemandIsLockedAsFarAsItIsAskedFor) {
  constexpr std::size_t bytes = 30 * piece + 100;  // more than the system locks
  {
    const PinnedArena arena(gpu, {.bytes = bytes, .piece_bytes = piece, .on_demand = true});
    arena.wait(0);
    EXPECT_LE(arena.ready(), piece);
    for (const std::size_t part : {std::size_t{1}, piece - 1, piece, 2 * piece + 1, 5 * piece}) {
      arena.wait(part);
      const std::size_t pieces = (part + piece - 1) / piece;
      EXPECT_GE(arena.ready(), part);
      EXPECT_LE(arena.ready(), (pieces + 1) * piece);
      EXPECT_TRUE(is_zero(arena.view().sub(0, part)));
    }
    while (!arena.ready(6 * piece)) std::this_thread::yield();
    EXPECT_EQ(driver.outstanding(), (Outstanding{.registered = 6}));
    EXPECT_THROW(arena.wait(33 * piece), InvalidArgument);
  }
  EXPECT_TRUE(is_clean(driver));
  {
    const PinnedArena arena(gpu, {.bytes = 3 * piece + 1, .piece_bytes = piece, .on_demand = true});
    arena.wait(3 * piece + 1);
    EXPECT_EQ(arena.ready(), 3 * piece + 1);
    EXPECT_EQ(driver.outstanding(), (Outstanding{.registered = 4}));
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(PinnedMemory, AnArenaOnDemandEndsAtTheLimitOfTheSystem) {
  {
    const PinnedBuffer other(gpu, 50 * MiB);
    const PinnedArena arena(gpu, {.bytes = 100 * MiB, .piece_bytes = piece, .on_demand = true});
    arena.wait(12 * MiB);
    arena.wait(14 * MiB);
    for (int again = 0; again < 2; ++again) EXPECT_THROW(arena.wait(15 * MiB), OutOfMemory);
    arena.wait(14 * MiB);
    EXPECT_EQ(arena.ready(), 14 * MiB);
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(PinnedMemory, CopiesCrossTheBordersOfPieces) {
  {
    const Stream stream(gpu), other(machine.gpu(1));
    const PinnedArena arena(gpu, {.bytes = 3 * piece, .piece_bytes = piece});
    arena.wait(3 * piece);
    const MemoryView host = arena.view();
    const DeviceBuffer device(gpu, 3 * piece), elsewhere(machine.gpu(1), 3 * piece);
    for (std::size_t i = 0; i < host.bytes; i += 4096) host.data[i] = static_cast<std::byte>(i / 7);
    const MemoryView middle = host.sub(piece - 100, piece + 200);  // parts of all three
    copy(device.view().sub(0, middle.bytes), middle, stream);
    copy(elsewhere.view().sub(5, middle.bytes), middle, other);
    stream.synchronize();
    other.synchronize();
    EXPECT_EQ(std::memcmp(device.view().data, middle.data, middle.bytes), 0);
    EXPECT_EQ(std::memcmp(elsewhere.view().data + 5, middle.data, middle.bytes), 0);
    fill(host, 9, stream);
    copy(host.sub(1, 2 * piece), device.view().sub(3, 2 * piece), stream);
    stream.synchronize();
    EXPECT_EQ(std::memcmp(host.data + 1, device.view().data + 3, 2 * piece), 0);
    EXPECT_EQ(host.data[0], std::byte{9});
    EXPECT_EQ(host.data[3 * piece - 1], std::byte{9});
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(PinnedMemory, APieceThatCannotBeLockedIsAnErrorOfTheBytesBehindIt) {
  constexpr std::size_t bytes = 4 * piece;
  for (std::uint64_t n = 1; n <= 4; ++n) {
    for (const cuda::Status status : {cuda::memory_allocation, cuda::operating_system}) {
      driver.fail_call(n, status, {"host_register"});
      {
        const PinnedArena arena(gpu, {.bytes = bytes, .piece_bytes = piece});
        const std::size_t locked = (n - 1) * piece;
        arena.wait(locked);
        for (int again = 0; again < 2; ++again) {
          try {
            arena.wait(locked + 1);
            ADD_FAILURE() << "no error";
          } catch (const OutOfMemory& error) {
            const std::string what = error.what();
            EXPECT_EQ(error.requested(), bytes);
            EXPECT_NE(what.find("page-locked memory"), std::string::npos) << what;
            EXPECT_NE(what.find(format_bytes(locked) + " are ready"), std::string::npos) << what;
            EXPECT_NE(what.find("memlock limit"), std::string::npos) << what;
          }
        }
        EXPECT_EQ(arena.ready(), locked);
        std::memset(arena.view().data, 1, locked);
      }
      driver.disarm();
      EXPECT_TRUE(is_clean(driver)) << "n = " << n;
    }
  }
}

TEST_F(PinnedMemory, LockingStopsAtTheLimitOfTheSystem) {
  {
    const PinnedBuffer other(gpu, 50 * MiB);
    const PinnedArena arena(gpu, {.bytes = 20 * MiB, .piece_bytes = piece});
    EXPECT_THROW(arena.wait(20 * MiB), OutOfMemory);
    EXPECT_EQ(arena.ready(), 14 * MiB);
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(PinnedMemory, OtherErrorsOfTheDeviceAreReported) {
  driver.fail_call(2, unknown_error, {"host_register"});
  {
    const PinnedArena arena(gpu, {.bytes = 3 * piece, .piece_bytes = piece});
    try {
      arena.wait(3 * piece);
      ADD_FAILURE() << "no error";
    } catch (const DeviceError& error) {
      EXPECT_EQ(error.code(), unknown_error);
    }
    EXPECT_EQ(arena.ready(), piece);
  }
  driver.disarm();
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(PinnedMemory, AnyCallOfAnArenaFails) {
  for (std::uint64_t n = 1;; ++n) {
    watchdog.step("call " + std::to_string(n));
    bool struck = false;
    {
      std::optional<PinnedArena> arena;
      driver.fail_call(n, unknown_error);
      try {
        arena.emplace(gpu, PinnedArenaOptions{.bytes = 3 * piece, .piece_bytes = piece});
        arena->wait(3 * piece);
      } catch (const DeviceError& error) {
        EXPECT_EQ(error.code(), unknown_error);
      }
      arena.reset();
      struck = driver.fault_struck();
      driver.disarm();
    }
    ASSERT_TRUE(is_clean(driver)) << "n = " << n;
    if (!struck) break;
  }
}

TEST_F(PinnedMemory, ALostDeviceEndsTheWait) {
  driver.lose_device_at(3);
  {
    const PinnedArena arena(gpu, {.bytes = 8 * piece, .piece_bytes = piece});
    EXPECT_THROW(arena.wait(8 * piece), DeviceError);
  }
  driver.disarm();
  EXPECT_TRUE(driver.violations().empty());
}

TEST_F(PinnedMemory, AnArenaThatIsDroppedStops) {
  for (int i = 0; i < 20; ++i) {
    const PinnedArena arena(gpu, {.bytes = 16 * piece, .piece_bytes = piece});
    if (i % 2 == 1) arena.wait(static_cast<std::size_t>(i) * piece / 2);
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST_F(PinnedMemory, ManyThreadsWaitForTheirPieces) {
  {
    const PinnedArena arena(gpu, {.bytes = 8 * piece, .piece_bytes = piece});
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t part = t; part < 8; part += 4) {
          arena.wait((part + 1) * piece);
          std::memset(arena.view().data + part * piece, static_cast<int>(part), piece);
        }
      });
    }
    threads.clear();
    for (std::size_t part = 0; part < 8; ++part) {
      EXPECT_EQ(arena.view().data[(part + 1) * piece - 1], static_cast<std::byte>(part));
    }
  }
  EXPECT_TRUE(is_clean(driver));
}

TEST(PinnedArenaOfTheCpu, IsTakenInTheBackground) {
  const PinnedArena arena(Device::cpu(), {.bytes = 10 * MiB + 1, .piece_bytes = 4 * MiB});
  arena.wait(10 * MiB + 1);
  EXPECT_TRUE(is_zero(arena.view()));
  const Stream stream(Device::cpu());
  fill(arena.view(), 1, stream);
  stream.synchronize();
  EXPECT_EQ(arena.view().data[10 * MiB], std::byte{1});
}

// More than this machine has: found out before memory is touched.
TEST(PinnedArenaOfTheCpu, MemoryThatIsNotThereIsRefused) {
  const std::size_t bytes = 2 * Device::cpu().capabilities().memory_bytes;
  const PinnedArena arena(Device::cpu(), {.bytes = bytes});
  try {
    arena.wait(1);
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.requested(), bytes);
    EXPECT_NE(what.find("are available"), std::string::npos) << what;
  }
  EXPECT_EQ(arena.ready(), 0U);
}

TEST(PinnedArena, RefusesNonsense) {
  const auto make = [](PinnedArenaOptions options) { PinnedArena(Device::cpu(), options); };
  EXPECT_THROW(make({}), InvalidArgument);
  EXPECT_THROW(make({.bytes = ~std::size_t{0}}), InvalidArgument);
  EXPECT_THROW(make({.bytes = 1, .piece_bytes = 0}), InvalidArgument);
  EXPECT_THROW(make({.bytes = std::size_t{1} << 60}), OutOfMemory);
  const PinnedArena arena(Device::cpu(), {.bytes = 1, .piece_bytes = ~std::size_t{0}});
  EXPECT_EQ(arena.piece_bytes(), 2 * MiB);
}

}  // namespace
}  // namespace ps::test
