// The fake driver's memory: lifetimes, pools and mapped pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "fake/fake_driver.h"
#include "fake/rig.h"
#include "support/expect_clean.h"

namespace ps::test {
namespace {

using cuda::memory_allocation;
using cuda::success;

constexpr std::size_t MiB = std::size_t{1} << 20;

TEST(FakeMemory, FreedMemoryMustNotBeTouched) {
  Rig rig;
  FakeDriver& driver = rig.driver;
  const auto stream = rig.stream();
  void* data = nullptr;
  driver.device_alloc(&data, 64);
  driver.device_free(data);
  driver.fill(data, 1, 64, stream);
  EXPECT_TRUE(only_violation(driver, "that are not allocated"));
}

TEST(FakeMemory, WorkMustStayInsideItsAllocation) {
  Rig rig;
  FakeDriver& driver = rig.driver;
  const auto stream = rig.stream();
  std::uint8_t* data = rig.memory(64);
  driver.fill(data, 1, 65, stream);
  EXPECT_TRUE(only_violation(driver, "65 bytes"));
  std::vector<std::uint8_t> pageable(64);
  driver.copy(data, pageable.data(), 64, stream);
  EXPECT_EQ(driver.violations().size(), 2U);
  driver.allow_pageable(pageable.data(), 64);
  driver.copy(data, pageable.data(), 64, stream);
  pageable[0] = 1;  // a pageable copy has completed when it returns
  driver.forget_pageable(pageable.data());
  EXPECT_EQ(driver.violations().size(), 2U);
  EXPECT_EQ(driver.copy(data, data + 1, 8, stream), invalid_value);
  EXPECT_EQ(driver.violations().size(), 3U);
}

TEST(FakeMemory, MemoryMustNotBeFreedBeforeItsWorkIsKnownToBeDone) {
  Rig rig;
  FakeDriver& driver = rig.driver;
  const auto stream = rig.stream();
  void *pinned = nullptr, *device = nullptr;
  driver.host_alloc(&pinned, 64);
  driver.device_alloc(&device, 64);
  driver.copy(device, pinned, 64, stream);
  driver.host_free(pinned);
  EXPECT_TRUE(only_violation(driver, "is freed without waiting for copy"));
  driver.device_free(device);
  EXPECT_EQ(driver.violations().size(), 2U);
}

TEST(FakeMemory, FreesNeedWhatWasAllocatedThatWay) {
  Rig rig;
  FakeDriver& driver = rig.driver;
  void *pinned = nullptr, *device = nullptr;
  driver.host_alloc(&pinned, 64);
  driver.device_alloc(&device, 64);
  EXPECT_EQ(driver.host_free(device), invalid_value);
  EXPECT_EQ(driver.device_free(pinned), invalid_value);
  EXPECT_EQ(driver.pool_free(device, rig.stream()), invalid_value);
  EXPECT_EQ(driver.violations().size(), 3U);
  EXPECT_EQ(driver.host_free(pinned), success);
  EXPECT_EQ(driver.device_free(device), success);
  EXPECT_EQ(driver.host_free(pinned), invalid_value);
  EXPECT_EQ(driver.device_free(device), invalid_value);
  EXPECT_EQ(driver.violations().size(), 5U);
}

TEST(FakeMemory, MemoryRunsOut) {
  FakeDriver driver({.device_bytes = 1000, .pinned_bytes = 500});
  void *first = nullptr, *second = nullptr;
  EXPECT_EQ(driver.device_alloc(&first, 600), success);
  EXPECT_EQ(driver.device_alloc(&second, 600), memory_allocation);
  EXPECT_EQ(driver.last_error(), memory_allocation);
  EXPECT_EQ(driver.last_error(), success);
  std::size_t free = 0, total = 0;
  ASSERT_EQ(driver.memory_info(&free, &total), success);
  EXPECT_EQ(free, 400U);
  EXPECT_EQ(total, 1000U);
  EXPECT_EQ(driver.outstanding(), (Outstanding{.device = 1}));
  EXPECT_EQ(driver.device_free(first), success);
  EXPECT_EQ(driver.device_alloc(&second, 600), success);
  EXPECT_EQ(driver.device_free(second), success);
  EXPECT_EQ(driver.host_alloc(&first, 501), memory_allocation);
  driver.last_error();
  EXPECT_TRUE(is_clean(driver));
}

TEST(FakeMemory, MemoryOfTheCallerCanBePageLockedInPlace) {
  Rig rig({.pinned_bytes = 100});
  FakeDriver& driver = rig.driver;
  const auto stream = rig.stream();
  std::vector<std::uint8_t> host(200);
  std::uint8_t* device = rig.memory(100);
  EXPECT_EQ(driver.host_register(host.data(), 50), success);
  EXPECT_EQ(driver.host_register(host.data() + 50, 50), success);
  EXPECT_EQ(driver.outstanding().registered, 2U);
  EXPECT_EQ(driver.host_register(host.data() + 100, 1), memory_allocation) << "the limit";
  driver.copy(device, host.data() + 50, 50, stream);
  EXPECT_EQ(driver.host_register(host.data() + 120, 0), invalid_value);
  EXPECT_TRUE(driver.violations().empty());
  driver.copy(device, host.data() + 40, 20, stream);
  EXPECT_TRUE(only_violation(driver, "that are not allocated")) << "crosses two registrations";
  driver.forgive();
  EXPECT_EQ(driver.host_unregister(host.data() + 50), invalid_value);
  EXPECT_TRUE(only_violation(driver, "is freed without waiting for copy"));
  driver.forgive();
  EXPECT_EQ(driver.host_register(host.data() + 40, 20), already_registered);
  EXPECT_EQ(driver.host_unregister(host.data() + 1), not_registered);
  EXPECT_EQ(driver.violations().size(), 2U);
  driver.forgive();
  EXPECT_EQ(driver.host_unregister(host.data()), success);
  EXPECT_EQ(driver.host_register(host.data() + 100, 100), success) << "the bytes came back";
  EXPECT_EQ(driver.host_unregister(host.data() + 100), success);
  driver.stream_synchronize(stream);
}

TEST(FakeMemory, MemoryMayNotBeRegistrable) {
  FakeDriver driver({.registered_memory = false});
  int value = 0;
  EXPECT_EQ(driver.host_register(&value, sizeof(value)), not_supported);
  EXPECT_EQ(driver.violations().size(), 1U);
}

class FakePools : public testing::Test {
 protected:
  cuda::PoolHandle pool(std::size_t limit = 0) {
    cuda::PoolHandle handle = nullptr;
    EXPECT_EQ(driver.pool_create(&handle, 0, limit), success);
    return handle;
  }
  std::uint8_t* allocate(cuda::PoolHandle from, std::size_t bytes, cuda::StreamHandle stream) {
    void* data = nullptr;
    EXPECT_EQ(driver.pool_alloc(&data, bytes, from, stream), success);
    return static_cast<std::uint8_t*>(data);
  }
  cuda::PoolUse use(cuda::PoolHandle of) {
    cuda::PoolUse result;
    EXPECT_EQ(driver.pool_use(of, &result), success);
    return result;
  }

  Rig rig;
  FakeDriver& driver = rig.driver;
  cuda::StreamHandle a = rig.stream(), b = rig.stream();
};

TEST_F(FakePools, MemoryIsUsableInStreamOrderOnly) {
  const auto from = pool();
  std::uint8_t* data = allocate(from, 1000, a);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 256, 0U);
  driver.fill(data, 1, 1000, a);
  EXPECT_TRUE(driver.violations().empty());
  std::uint8_t* other = allocate(from, 1000, a);
  driver.fill(other, 1, 1000, b);
  EXPECT_TRUE(only_violation(driver, "fill on stream 1 does not wait for pool_alloc on stream 0"));
  driver.pool_free(data, b);
  ASSERT_EQ(driver.violations().size(), 2U);
  EXPECT_NE(driver.violations().back().find("pool_free on stream 1 does not wait for fill"),
            std::string::npos);
  driver.pool_free(other, a);
  driver.fill(other, 1, 1000, a);
  EXPECT_EQ(driver.violations().size(), 3U);
  driver.pool_free(other, a);
  EXPECT_EQ(driver.violations().size(), 4U);
  driver.pool_destroy(from);
}

TEST_F(FakePools, FreedMemoryIsReusedByWorkThatFollowsTheFree) {
  const auto from = pool();
  for (int i = 0; i < 10; ++i) {
    std::uint8_t* first = allocate(from, 1000, a);
    driver.fill(first, 1, 1000, a);
    driver.pool_free(first, a);
    std::uint8_t* second = allocate(from, 900, a);
    EXPECT_EQ(second, first);
    driver.fill(second, 2, 900, a);
    driver.pool_free(second, a);
    driver.stream_wait_event(b, rig.mark(a));
    std::uint8_t* third = allocate(from, 1000, b);
    EXPECT_EQ(third, first);
    driver.fill(third, 3, 1000, b);
    driver.pool_free(third, b);
    driver.stream_wait_event(a, rig.mark(b));
  }
  driver.stream_synchronize(a);
  EXPECT_TRUE(driver.violations().empty());
  driver.pool_destroy(from);
}

TEST_F(FakePools, MemoryThatIsStillBeingFreedElsewhereIsNotReused) {
  const auto from = pool();
  std::uint8_t* first = allocate(from, 1000, a);
  std::uint32_t* flag = reinterpret_cast<std::uint32_t*>(rig.pinned(4));
  *flag = 0;
  driver.stream_wait_value(a, flag, 1);
  driver.pool_free(first, a);
  std::uint8_t* second = allocate(from, 1000, b);
  EXPECT_NE(second, first);
  driver.pool_free(second, b);
  driver.stream_synchronize(b);
  std::atomic_ref<std::uint32_t>(*flag).store(1);
  driver.stream_synchronize(a);
  driver.pool_destroy(from);
  EXPECT_TRUE(driver.violations().empty());
}

TEST_F(FakePools, TheContentsOfFreedMemoryAreGone) {
  const auto from = pool();
  driver.pool_set_threshold(from, 100 * MiB);
  std::uint8_t* host = rig.pinned(1000);
  std::uint8_t* first = allocate(from, 1000, a);
  driver.fill(first, 1, 1000, a);
  driver.pool_free(first, a);
  std::uint8_t* second = allocate(from, 1000, a);
  ASSERT_EQ(second, first);
  driver.copy(host, second, 1000, a);
  driver.pool_free(second, a);
  driver.stream_synchronize(a);
  driver.host_read(host, 1000);
  EXPECT_EQ(std::count(host, host + 1000, 0xDB), 1000);
  driver.pool_destroy(from);
}

TEST_F(FakePools, CountsWhatIsUsedAndWhatIsReserved) {
  const auto from = pool();
  driver.pool_set_threshold(from, 2 * MiB);
  std::uint8_t* first = allocate(from, 3 * MiB, a);
  std::uint8_t* second = allocate(from, 1 * MiB, a);
  EXPECT_EQ(use(from).in_use, 4 * MiB);
  EXPECT_EQ(use(from).reserved, 4 * MiB);
  driver.pool_free(first, a);
  EXPECT_EQ(use(from).in_use, 1 * MiB);
  driver.stream_synchronize(a);
  EXPECT_EQ(use(from).reserved, 2 * MiB) << "given back down to the threshold, in steps";
  EXPECT_EQ(use(from).reserved_high, 4 * MiB);
  EXPECT_EQ(use(from).in_use_high, 4 * MiB);
  driver.pool_free(second, a);
  driver.stream_synchronize(a);
  EXPECT_EQ(use(from).reserved, 2 * MiB);
  driver.pool_trim(from, 0);
  EXPECT_EQ(use(from).reserved, 0U);
  driver.pool_destroy(from);
  EXPECT_TRUE(driver.violations().empty());
}

TEST_F(FakePools, TheLimitHolds) {
  const auto from = pool(4 * MiB);
  driver.pool_set_threshold(from, 100 * MiB);
  std::uint8_t* first = allocate(from, 3 * MiB, a);
  void* data = nullptr;
  EXPECT_EQ(driver.pool_alloc(&data, 2 * MiB, from, a), memory_allocation);
  driver.last_error();
  driver.pool_free(first, a);
  driver.stream_synchronize(a);
  // The free block is too large for reuse and goes back to make room.
  std::uint8_t* second = allocate(from, 1 * MiB, a);
  std::uint8_t* third = allocate(from, 3 * MiB, a);
  driver.pool_free(second, a);
  driver.pool_free(third, a);
  driver.pool_destroy(from);
  EXPECT_TRUE(driver.violations().empty());
}

class FakePages : public testing::Test {
 protected:
  static constexpr std::size_t page = std::size_t{64} << 10;

  std::uint8_t* reserve(std::size_t bytes) {
    void* address = nullptr;
    EXPECT_EQ(driver.address_reserve(&address, bytes), success);
    return static_cast<std::uint8_t*>(address);
  }
  cuda::MemoryHandle create(std::size_t bytes) {
    cuda::MemoryHandle memory = 0;
    EXPECT_EQ(driver.memory_create(&memory, bytes, 0), success);
    return memory;
  }

  Rig rig{{.device_bytes = 8 * page}};
  FakeDriver& driver = rig.driver;
  cuda::StreamHandle stream = rig.stream();
};

TEST_F(FakePages, GrowBehindOneAddress) {
  std::size_t granularity = 0;
  ASSERT_EQ(driver.address_granularity(0, &granularity), success);
  ASSERT_EQ(granularity, page);
  std::uint8_t* base = reserve(16 * page);
  const auto first = create(page), second = create(2 * page);
  EXPECT_EQ(driver.memory_map(base, page, first, 0), success);
  EXPECT_EQ(driver.memory_map(base + page, 2 * page, second, 0), success);
  // Work may span the pieces but not what is not mapped.
  driver.fill(base, 1, 3 * page, stream);
  EXPECT_TRUE(driver.violations().empty());
  driver.fill(base + 2 * page, 1, page + 1, stream);
  EXPECT_TRUE(only_violation(driver, "that are not allocated"));
  EXPECT_EQ(driver.outstanding(),
            (Outstanding{.streams = 1, .reservations = 1, .memories = 2, .mappings = 2}));
  EXPECT_EQ(driver.memory_unmap(base, 3 * page), invalid_value) << "the fill is not waited for";
  driver.stream_synchronize(stream);
  EXPECT_EQ(driver.memory_release(first), success);
  EXPECT_EQ(driver.memory_unmap(base, 3 * page), success);
  EXPECT_EQ(driver.memory_release(second), success);
  EXPECT_EQ(driver.address_free(base, 16 * page), success);
  EXPECT_EQ(driver.outstanding(), (Outstanding{.streams = 1}));
}

TEST_F(FakePages, MistakesAreFound) {
  void* address = nullptr;
  cuda::MemoryHandle memory = 0;
  EXPECT_EQ(driver.address_reserve(&address, page + 1), invalid_value);
  EXPECT_EQ(driver.memory_create(&memory, page / 2, 0), invalid_value);
  std::uint8_t* base = reserve(4 * page);
  const auto first = create(page), second = create(page);
  ASSERT_EQ(driver.memory_map(base, page, first, 0), success);
  EXPECT_EQ(driver.memory_map(base, page, second, 0), invalid_value) << "mapped already";
  EXPECT_EQ(driver.memory_map(base + page, page, first, 0), invalid_value) << "the same handle";
  EXPECT_EQ(driver.memory_map(base + 1, page, second, 0), invalid_value) << "not aligned";
  EXPECT_EQ(driver.memory_map(base + 4 * page, page, second, 0), invalid_value) << "not reserved";
  EXPECT_EQ(driver.memory_unmap(base + page, page), invalid_value) << "not mapped";
  EXPECT_EQ(driver.address_free(base, 4 * page), invalid_value) << "still mapped";
  EXPECT_EQ(driver.violations().size(), 8U);
  EXPECT_EQ(driver.memory_create(&memory, 7 * page, 0), memory_allocation);
  EXPECT_EQ(driver.violations().size(), 8U);
  driver.memory_unmap(base, page);
  driver.memory_release(first);
  driver.memory_release(second);
  EXPECT_EQ(driver.memory_release(second), invalid_value);
  driver.address_free(base, 4 * page);
  EXPECT_EQ(driver.violations().size(), 9U);
}

TEST(FakePagesDeathTest, AddressesWithoutPagesFault) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        FakeDriver driver;
        void* address = nullptr;
        driver.address_reserve(&address, std::size_t{64} << 10);
        *static_cast<volatile char*>(address) = 1;
      },
      "");
}

}  // namespace
}  // namespace ps::test
