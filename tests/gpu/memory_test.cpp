// Device memory: owned, pooled, growing; and running out of it.
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "gpu/gate.h"
#include "gpu/gpu_test.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "penstock/host/growable.h"
#include "penstock/host/pool.h"

namespace ps::test {
namespace {

// More than any machine has, and more than a process can address: nothing tries to find it.
constexpr std::size_t absurd = std::size_t{1} << 50;

class MemoryGpu : public GpuTest {};

TEST_F(MemoryGpu, BuffersOwnWhatTheyHold) {
  PinnedBuffer pinned(gpu, 1001);
  DeviceBuffer device(gpu, 1001);
  EXPECT_EQ(pinned.view().place.memory, Memory::pinned);
  EXPECT_EQ(device.view().place, gpu.place());
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, pinned.view().data), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, device.view().data), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, gpu.index());

  const Stream stream(gpu);
  std::memset(pinned.view().data, 1, 1001);
  copy(device.view(), pinned.view(), stream);
  stream.synchronize();
  const DeviceBuffer moved(std::move(device));
  EXPECT_EQ(device.bytes(), 0U);  // NOLINT: a moved-from buffer is empty
  EXPECT_TRUE(all_are(look(moved.view()), 1));
  EXPECT_THROW(PinnedBuffer(gpu, 0), InvalidArgument);
  EXPECT_THROW(DeviceBuffer(gpu, ~std::size_t{0}), InvalidArgument);
}

TEST_F(MemoryGpu, RunningOutIsAnErrorThatPasses) {
  const Stream stream(gpu);
  const Pool pool(gpu);
  GrowableBuffer growable(gpu, {.capacity = std::size_t{1} << 42, .initial = 1});
  const std::pair<const char*, std::function<void()>> requests[] = {
      {"DeviceBuffer", [&] { DeviceBuffer(gpu, absurd); }},
      {"PinnedBuffer", [&] { PinnedBuffer(gpu, absurd); }},
      {"Pool", [&] { (void)pool.allocate(absurd, stream); }},
      {"GrowableBuffer", [&] { growable.grow(growable.capacity(), stream); }},
  };
  for (const auto& [name, request] : requests) {
    EXPECT_THROW(request(), OutOfMemory) << name;
    EXPECT_TRUE(no_error_left()) << name;
    const MemoryView memory = pool.allocate(1000, stream);
    fill(memory, 1, stream);
    stream.synchronize();
    EXPECT_TRUE(all_are(look(memory), 1)) << "the device does not live on behind " << name;
    pool.free(memory, stream);
  }
  EXPECT_EQ(pool.statistics().failures, 1U);
}

TEST_F(MemoryGpu, RunningOutSaysOfWhat) {
  try {
    const DeviceBuffer buffer(gpu, absurd);
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested(), absurd);
    EXPECT_NE(std::string(error.what()).find(gpu.name()), std::string::npos) << error.what();
  }
}

TEST_F(MemoryGpu, PoolMemoryFollowsItsStream) {
  const Stream stream(gpu), other(gpu);
  const Pool pool(gpu);
  const Event ready(gpu);
  const PinnedBuffer out(gpu, 64 * KiB);
  pool.free(pool.allocate(64 * KiB, stream), stream);
  stream.synchronize();
  {
    const Gate gate(cuda_stream(stream));
    const MemoryView memory = pool.allocate(64 * KiB, stream);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data) % 256, 0U);
    EXPECT_EQ(memory.place, gpu.place());
    fill(memory, 5, stream);
    stream.record(ready);
    other.wait(ready);
    copy(out.view(), memory, other);
    pool.free(memory, other);
    EXPECT_FALSE(other.done());
  }
  other.synchronize();
  const auto* got = out.view().as<std::uint8_t>();
  EXPECT_TRUE(all_are({got, got + out.bytes()}, 5));
  EXPECT_EQ(pool.allocate(0, stream).data, nullptr);
  pool.free({}, stream);
}

TEST_F(MemoryGpu, APoolReusesWhatWasFreedInItsStream) {
  const Stream stream(gpu);
  const Pool pool(gpu);
  const auto use = [&](std::size_t bytes) {
    const MemoryView memory = pool.allocate(bytes, stream);
    fill(memory, 1, stream);
    pool.free(memory, stream);
  };
  use(4 * MiB);
  const std::size_t reserved = pool.statistics().reserved;
  EXPECT_GE(reserved, 4 * MiB);
  for (std::size_t i = 0; i < 200; ++i) use(1 + i * 20'011 % (4 * MiB));
  EXPECT_EQ(pool.statistics().reserved, reserved) << "memory of the stream's own past was not used";
  EXPECT_EQ(pool.statistics().allocations, 201U);
  stream.synchronize();
  EXPECT_EQ(pool.statistics().in_use, 0U);
  EXPECT_GE(pool.statistics().in_use_high, 4 * MiB);
}

TEST_F(MemoryGpu, APoolKeepsToItsLimitAndStaysUsable) {
  const Stream stream(gpu);
  const Pool pool(gpu, {.limit = 64 * MiB});
  const MemoryView first = pool.allocate(48 * MiB, stream);
  EXPECT_GE(pool.statistics().in_use, 48 * MiB);
  try {
    (void)pool.allocate(48 * MiB, stream);
    ADD_FAILURE() << "more than the limit";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("64 MiB"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(no_error_left());
  EXPECT_EQ(pool.statistics().failures, 1U);
  EXPECT_LE(pool.statistics().reserved, 64 * MiB);
  pool.free(first, stream);
  stream.synchronize();
  const MemoryView second = pool.allocate(48 * MiB, stream);
  pool.free(second, stream);
  stream.synchronize();
  EXPECT_EQ(pool.statistics().in_use, 0U);
}

TEST_F(MemoryGpu, APoolKeepsOrGivesBackAsAsked) {
  const Stream stream(gpu);
  const Pool keeps(gpu), gives(gpu, {.release_threshold = 0});
  for (const Pool& pool : {keeps, gives}) {
    pool.free(pool.allocate(4 * MiB, stream), stream);
    EXPECT_GE(pool.statistics().reserved_high, 4 * MiB);
  }
  stream.synchronize();
  EXPECT_GE(keeps.statistics().reserved, 4 * MiB);
  EXPECT_EQ(gives.statistics().reserved, 0U);
}

TEST_F(MemoryGpu, TrimGivesBackWhatIsFreeAndNothingElse) {
  const Stream stream(gpu);
  const Pool pool(gpu);
  const MemoryView kept = pool.allocate(2 * MiB, stream);
  const MemoryView freed = pool.allocate(64 * MiB, stream);
  fill(kept, 3, stream);
  pool.free(freed, stream);
  stream.synchronize();
  const std::size_t before = pool.statistics().reserved;
  pool.trim();
  EXPECT_LT(pool.statistics().reserved, before);
  EXPECT_GE(pool.statistics().reserved, 2 * MiB);
  EXPECT_TRUE(all_are(look(kept), 3));
  pool.free(kept, stream);
  stream.synchronize();
  pool.trim();
  EXPECT_EQ(pool.statistics().reserved, 0U);
}

TEST_F(MemoryGpu, AGrowableBufferKeepsAddressAndContents) {
  const Stream stream(gpu);
  GrowableBuffer buffer(gpu, {.capacity = 32 * MiB, .initial = 10});
  const std::size_t page = buffer.page();
  EXPECT_EQ(buffer.view().bytes, 10U);
  EXPECT_EQ(buffer.mapped(), page);
  const auto* const address = buffer.view().data;
  for (std::size_t pages = 1; pages <= 3; ++pages) {
    buffer.grow(pages * page, stream);
    EXPECT_EQ(buffer.view().data, address);
    EXPECT_EQ(buffer.view().bytes, pages * page);
    fill(buffer.view().sub((pages - 1) * page, page), static_cast<std::uint8_t>(pages), stream);
  }
  buffer.grow(page, stream);  // smaller: nothing happens
  EXPECT_EQ(buffer.view().bytes, 3 * page);
  EXPECT_THROW(buffer.grow(buffer.capacity() + 1, stream), InvalidArgument);
  stream.synchronize();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(all_are(look(buffer.view().sub(i * page, page)), static_cast<std::uint8_t>(i + 1)));
  }
}

TEST_F(MemoryGpu, GrowingDoesNotWaitForTheDevice) {
  const Stream stream(gpu);
  GrowableBuffer buffer(gpu, {.capacity = 32 * MiB, .initial = 1});
  fill(buffer.view(), 0, stream);
  stream.synchronize();
  const std::size_t before = buffer.mapped();
  Gate gate(cuda_stream(stream));
  fill(buffer.view(), 1, stream);
  buffer.grow(before + 1, stream);
  fill(buffer.view().sub(1, before), 2, stream);
  EXPECT_FALSE(gate.is_open());
  gate.open();
  stream.synchronize();
  EXPECT_TRUE(all_are(look(buffer.view().sub(0, 1)), 1));
  EXPECT_TRUE(all_are(look(buffer.view().sub(1, before)), 2));
}

TEST_F(MemoryGpu, GrowthThatFailsLeavesTheBufferAsItWas) {
  const Stream stream(gpu);
  GrowableBuffer buffer(gpu, {.capacity = std::size_t{1} << 42, .initial = 100});
  fill(buffer.view(), 4, stream);
  const std::size_t mapped = buffer.mapped();
  EXPECT_THROW(buffer.grow(buffer.capacity(), stream), OutOfMemory);
  EXPECT_EQ(buffer.mapped(), mapped);
  EXPECT_EQ(buffer.view().bytes, 100U);
  buffer.grow(mapped + 1, stream);
  stream.synchronize();
  EXPECT_TRUE(all_are(look(buffer.view().sub(0, 100)), 4));
}

TEST_F(MemoryGpu, AGrowableBufferWaitsForItsStreamsBeforeItGoes) {
  const Stream stream(gpu);
  const PinnedBuffer out(gpu, 1000);
  {
    GrowableBuffer buffer(gpu, {.capacity = MiB});
    buffer.grow(1000, stream);
    const Gate gate(cuda_stream(stream));
    fill(buffer.view(), 6, stream);
    copy(out.view(), buffer.view(), stream);
  }  // the gate opens first
  const auto* got = out.view().as<std::uint8_t>();
  EXPECT_TRUE(all_are({got, got + out.bytes()}, 6));
}

TEST_F(MemoryGpu, AGrowableBufferWaitsForTheWorkOfStreamsThatAreGone) {
  const PinnedBuffer out(gpu, 1000);
  {
    GrowableBuffer buffer(gpu, {.capacity = MiB});
    std::optional<Gate> gate;
    {
      const Stream dropped(gpu);
      buffer.grow(1000, dropped);
      gate.emplace(cuda_stream(dropped));
      fill(buffer.view(), 7, dropped);
      copy(out.view(), buffer.view(), dropped);
    }
    EXPECT_FALSE(gate->is_open()) << "a stream that goes waits for nothing";
  }  // the gate opens first
  const auto* got = out.view().as<std::uint8_t>();
  EXPECT_TRUE(all_are({got, got + out.bytes()}, 7));
}

}  // namespace
}  // namespace ps::test
