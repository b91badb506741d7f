// Page-locked memory that is registered in place: copies and kernels reach all of it.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "gpu/gpu_test.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/pinned_arena.h"
#include "penstock/host/slot_cache.h"
#include "penstock/host/stream.h"
#include "penstock/ops/iterate.h"

namespace ps::test {
namespace {

class PinnedMemoryGpu : public GpuTest {
 protected:
  static bool is_page_locked(const void* data) {
    cudaPointerAttributes attributes{};
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, data), cudaSuccess);
    return attributes.type == cudaMemoryTypeHost;
  }
};

TEST_F(PinnedMemoryGpu, LargeBuffersArePageLocked) {
  const std::size_t bytes = 40 * MiB + 12;
  const PinnedBuffer source(gpu, bytes);
  EXPECT_TRUE(is_page_locked(source.view().data));
  EXPECT_TRUE(is_page_locked(source.view().data + bytes - 1));
  const DeviceBuffer target(gpu, bytes);
  const Stream stream(gpu);
  std::memset(source.view().data, 3, bytes);
  copy(target.view(), source.view(), stream);
  stream.synchronize();
  EXPECT_TRUE(all_are(look(target.view()), 3));
}

TEST_F(PinnedMemoryGpu, CopiesAndKernelsCrossTheBordersOfAnArena) {
  constexpr std::size_t piece = 2 * MiB;
  const PinnedArena arena(gpu, {.bytes = 5 * piece, .piece_bytes = piece});
  arena.wait(arena.bytes());
  for (std::size_t begin = 0; begin < arena.bytes(); begin += piece) {
    EXPECT_TRUE(is_page_locked(arena.view().data + begin));
  }
  const Stream stream(gpu);
  const MemoryView part = arena.view().sub(piece - 400, 3 * piece + 800);
  const DeviceBuffer device(gpu, part.bytes);
  fill(part, 7, stream);
  copy(device.view(), part, stream);
  stream.synchronize();
  EXPECT_TRUE(all_are(look(device.view()), 7));
  EXPECT_EQ(arena.view().data[piece - 401], std::byte{0});

  // A kernel reads page-locked memory by its host address.
  const std::size_t count = part.bytes / sizeof(float);
  auto* values = part.as<float>();
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1000);
  const MemoryView seen{part.data, part.bytes, gpu.place()};
  iterate({.in = floats(seen, 0, count), .out = floats(device.view(), 0, count), .rounds = 1},
          stream);
  copy(part, device.view(), stream);
  stream.synchronize();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    wrong += values[i] != iterated(static_cast<float>(i % 1000), 1);
  }
  EXPECT_EQ(wrong, 0U);
}

TEST_F(PinnedMemoryGpu, MemoryThatIsNotThereIsRefused) {
  const PinnedArena arena(gpu, {.bytes = std::size_t{1} << 45});
  EXPECT_THROW(arena.wait(1), OutOfMemory);
}

// Items are streamed through a cache that holds half of them, from an arena that is still growing.
TEST_F(PinnedMemoryGpu, ACacheOnTheDeviceIsFilledFromAnArena) {
  constexpr std::size_t items = 12, bytes = 3 * MiB, count = bytes / sizeof(float);
  const PinnedArena arena(gpu, {.bytes = items * bytes, .piece_bytes = 4 * MiB});
  const DeviceBuffer memory(gpu, items / 2 * bytes), result(gpu, bytes);
  const Stream loading(gpu), computing(gpu);
  SlotCache cache(gpu, memory.view(),
                  {.granularity = bytes, .policy = pinned_policy({3}, frequency_policy())});
  for (std::size_t round = 0; round < 60; ++round) {
    const std::size_t item = round < items ? round : round * 7 % 11 % items;
    const MemoryView source = arena.view().sub(item * bytes, bytes);
    if (round < items) {
      arena.wait((item + 1) * bytes);
      std::fill_n(source.as<float>(), count, static_cast<float>(item));
    }
    auto slot = cache.acquire(item, bytes);
    if (!slot.hit()) {
      copy(slot.view(), source, loading);
      slot.filled(loading);
    }
    slot.join(computing);
    iterate(
        {.in = floats(slot.view(), 0, count), .out = floats(result.view(), 0, count), .rounds = 1},
        computing);
    slot.release_after(computing);
    const PinnedBuffer out(gpu, bytes);
    copy(out.view(), result.view(), computing);
    computing.synchronize();
    const auto* got = out.view().as<float>();
    const float expected = iterated(static_cast<float>(item), 1);
    EXPECT_EQ(std::count(got, got + count, expected), static_cast<std::ptrdiff_t>(count));
  }
  EXPECT_GT(cache.statistics().evictions, 0U);
  EXPECT_TRUE(cache.find(3).has_value());
}

}  // namespace
}  // namespace ps::test
