// CompressedExpertStore, and StreamedExperts that read one on the CPU, with the steps of moe().
#include "penstock/outofcore/compressed_expert_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "outofcore/expert_groups.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/ops/compress.h"
#include "penstock/outofcore/experts.h"
#include "support/expect_clean.h"
#include "support/expert_arrays.h"
#include "support/expert_steps.h"
#include "support/fake_machine.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

constexpr ExpertShape shape{.layers = 2, .experts = 4, .hidden = 16, .width = 8};

// What the store has for an expert, decompressed.
std::vector<std::byte> decompressed(const CompressedExpertStore& store, std::int64_t layer,
                                    std::int64_t expert) {
  const MemoryView block = store.block(layer, expert);
  std::vector<std::byte> values(ExpertStore::block_bytes(store.shape()));
  const Stream stream(Device::cpu());
  decompress({.compressed = TensorView(block.data, DType::u8,
                                       {static_cast<std::int64_t>(block.bytes)}, block.place),
              .out = TensorView(values.data(), DType::bf16,
                                {static_cast<std::int64_t>(values.size() / 2)})},
             stream);
  stream.synchronize();
  return values;
}

std::size_t bytes_for_compressed(const ExpertShape& of, std::size_t slots) {
  const std::size_t least = detail::least_expert_slots(static_cast<std::size_t>(of.experts));
  return StreamedExperts::least_bytes(of, 0, 64, true) +
         (slots - least) * ExpertStore::block_bytes(of);
}

TEST(CompressedExpertStoreTest, KeepsEveryBit) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    ExpertShape any = random_shape(seed, random);
    any.dtype = DType::bf16;
    const ExpertStore plain(Device::cpu(), any);
    randomise(plain, random);
    CompressedExpertStore store(Device::cpu(), any);
    std::vector<std::int64_t> order(static_cast<std::size_t>(any.layers * any.experts));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::size_t sum = 0;
    for (const std::int64_t number : order) {
      EXPECT_FALSE(store.complete());
      const std::int64_t layer = number / any.experts, expert = number % any.experts;
      store.set(layer, expert, plain.block(layer, expert));
      const std::size_t bytes = store.block(layer, expert).bytes;
      EXPECT_LE(bytes, CompressedExpertStore::most_block_bytes(any));
      sum += bytes;
      EXPECT_GE(store.bytes(), sum);
      EXPECT_LT(store.bytes(), sum + 64 * static_cast<std::size_t>(store.count()));
    }
    EXPECT_TRUE(store.complete());
    for (const std::int64_t number : order) {
      const MemoryView block = plain.block(number / any.experts, number % any.experts);
      const auto values = decompressed(store, number / any.experts, number % any.experts);
      EXPECT_EQ(std::memcmp(values.data(), block.data, block.bytes), 0);
    }
  }
}

// 400 experts of 192 KiB: what is locked is what they take compressed, and little more.
TEST(CompressedExpertStoreTest, TakesTheMemoryThatIsNeeded) {
  constexpr ExpertShape larger{.layers = 4, .experts = 100, .hidden = 256, .width = 128};
  FakeMachine machine({.pinned_bytes = 128 * MiB});
  for (const Device& device : {Device::cpu(), machine.gpu()}) {
    std::mt19937 random(1);
    const ExpertStore one(
        Device::cpu(), {.layers = 1, .experts = 1, .hidden = larger.hidden, .width = larger.width});
    randomise(one, random);
    CompressedExpertStore store(device, larger);
    EXPECT_LE(store.locked_bytes(), 2 * MiB);
    for (std::int64_t layer = 0; layer < 4; ++layer) {
      for (std::int64_t e = 0; e < 100; ++e) store.set(layer, e, one.block(0, 0));
    }
    EXPECT_TRUE(store.complete());
    const std::size_t plain = ExpertStore::bytes_needed(larger);
    EXPECT_LT(store.bytes(), plain * 69 / 100);
    EXPECT_GE(store.locked_bytes(), store.bytes());
    EXPECT_LE(store.locked_bytes(), store.bytes() + one.block_bytes() + 2 * 2 * MiB);
  }
  EXPECT_TRUE(is_clean(machine.driver()));
}

TEST(CompressedExpertStoreTest, ReportsMemoryThatCannotBeLocked) {
  constexpr ExpertShape larger{.layers = 1, .experts = 100, .hidden = 256, .width = 128};
  FakeMachine machine({.pinned_bytes = 4 * MiB});
  {
    CompressedExpertStore store(machine.gpu(), larger);
    std::mt19937 random(1);
    const ExpertStore one(
        Device::cpu(), {.layers = 1, .experts = 1, .hidden = larger.hidden, .width = larger.width});
    randomise(one, random);
    const auto fill = [&] {
      for (std::int64_t e = store.count(); e < 100; ++e) store.set(0, e, one.block(0, 0));
    };
    EXPECT_THROW(fill(), OutOfMemory);
    const std::int64_t set = store.count();
    EXPECT_GT(set, 20);
    EXPECT_LT(set, 100);
    EXPECT_THROW(fill(), OutOfMemory);
    EXPECT_EQ(store.count(), set);
    const MemoryView block = one.block(0, 0);
    EXPECT_EQ(std::memcmp(decompressed(store, 0, set - 1).data(), block.data, block.bytes), 0);
  }
  EXPECT_TRUE(is_clean(machine.driver()));
}

TEST(CompressedExpertStoreTest, ChecksArguments) {
  std::vector<std::byte> block(ExpertStore::block_bytes(shape));
  CompressedExpertStore store(Device::cpu(), shape);
  const MemoryView view{block.data(), block.size(), {}};
  const auto set = [&](std::int64_t layer, std::int64_t expert, MemoryView with) {
    return named([&] { store.set(layer, expert, with); });
  };
  EXPECT_EQ(set(2, 0, view), "layer");
  EXPECT_EQ(set(-1, 0, view), "layer");
  EXPECT_EQ(set(0, 4, view), "expert");
  EXPECT_EQ(set(0, 0, view.sub(0, block.size() - 2)), "block");
  EXPECT_EQ(set(0, 0, {}), "block");
  EXPECT_EQ(set(0, 0, {block.data(), block.size(), {Memory::device, 0}}), "block");
  EXPECT_EQ(store.count(), 0);
  EXPECT_EQ(set(1, 3, view), "");
  EXPECT_EQ(set(1, 3, view), "expert") << "it is set";
  EXPECT_EQ(named([&] { store.block(0, 0); }), "expert") << "it is not set";
  EXPECT_EQ(named([&] { store.block(0, 7); }), "expert");
  EXPECT_EQ(named([&] { store.block(9, 0); }), "layer");
  EXPECT_EQ(store.count(), 1);
  for (const DType other : {DType::f16, DType::f32}) {
    ExpertShape wrong = shape;
    wrong.dtype = other;
    EXPECT_THROW(CompressedExpertStore(Device::cpu(), wrong), Unsupported);
    EXPECT_THROW(CompressedExpertStore::most_block_bytes(wrong), Unsupported);
  }
  EXPECT_EQ(named([&] {
              CompressedExpertStore(
                  Device::cpu(), {.layers = 1, .experts = 1, .hidden = 1 << 20, .width = 1 << 19});
            }),
            "shape");
  EXPECT_EQ(named([&] { CompressedExpertStore(Device::cpu(), {.layers = 1}); }), "experts");
}

TEST(CompressedExpertStoreTest, SeveralThreadsFillIt) {
  const ExpertStore plain(Device::cpu(), shape);
  fill_store(plain);
  CompressedExpertStore store(Device::cpu(), shape);
  std::vector<std::thread> threads;
  for (std::int64_t first = 0; first < 4; ++first) {
    threads.emplace_back([&, first] {
      for (std::int64_t layer = 0; layer < 2; ++layer) {
        store.set(layer, first, plain.block(layer, first));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::int64_t i = 0; i < 8; ++i) {
    const MemoryView block = plain.block(i / 4, i % 4);
    EXPECT_EQ(std::memcmp(decompressed(store, i / 4, i % 4).data(), block.data, block.bytes), 0);
  }
}

TEST(CompressedExpertsTest, GiveTheBitsOfMoe) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    ExpertShape any = random_shape(seed, random);
    any.dtype = DType::bf16;
    const ExpertStore plain(Device::cpu(), any);
    if (seed % 3 == 0) {
      fill_store(plain);  // no bf16 numbers that a model has, but bits are bits
      for (std::int64_t i = 0; i < any.layers * any.experts; ++i) {
        const MemoryView block = plain.block(i / any.experts, i % any.experts);
        for (std::size_t j = 0; j < block.bytes / 2; ++j) {
          block.as<std::uint16_t>()[j] = static_cast<std::uint16_t>(random() & 0xBFFF);
        }
      }
    } else {
      randomise(plain, random);
    }
    const auto compressed = compressed_copy(Device::cpu(), plain);
    const std::size_t least = detail::least_expert_slots(static_cast<std::size_t>(any.experts));
    const std::size_t slots = least + random() % static_cast<std::size_t>(3 * any.experts);
    StreamedExperts experts({.compressed = compressed.get(),
                             .device = Device::cpu(),
                             .device_bytes = bytes_for_compressed(any, slots),
                             .prefetch = ExpertPrefetch::previous});
    EXPECT_EQ(experts.slots(),
              std::min(slots, std::max(least, static_cast<std::size_t>(any.layers * any.experts))));
    EXPECT_LE(experts.device_bytes(), bytes_for_compressed(any, slots));
    const Stream stream(Device::cpu());
    for (int call = 0; call < 8; ++call) {
      Arrays arrays = random_arrays(plain, call, random);
      const auto wanted = arrays.wanted(stream);
      experts.forward(call % any.layers, arrays.call(), stream);
      experts.synchronize();
      EXPECT_EQ(arrays.take_out(), wanted) << "call " << call;
    }
    EXPECT_EQ(experts.statistics().failed_calls, 0U);
  }
}

TEST(CompressedExpertsTest, CheckOptions) {
  const ExpertStore plain(Device::cpu(), shape);
  fill_store(plain);
  const auto compressed = compressed_copy(Device::cpu(), plain);
  const auto made = [&](const std::function<void(StreamedExpertsOptions&)>& change) {
    StreamedExpertsOptions options{.compressed = compressed.get(),
                                   .device = Device::cpu(),
                                   .device_bytes = bytes_for_compressed(shape, 4)};
    change(options);
    return named([&] { StreamedExperts(std::move(options)); });
  };
  EXPECT_EQ(made([](auto&) {}), "");
  EXPECT_EQ(made([&](auto& o) { o.store = &plain; }), "compressed");
  EXPECT_EQ(made([&](auto& o) { o.device_bytes = bytes_for_compressed(shape, 2); }), "");
  EXPECT_EQ(made([&](auto& o) { o.device_bytes = bytes_for_compressed(shape, 2) - 1; }),
            "device_bytes");
  EXPECT_EQ(made([&](auto& o) { o.pinned = {{2, 0}}; }), "pinned");
  CompressedExpertStore partial(Device::cpu(), shape);
  partial.set(0, 1, plain.block(0, 1));
  try {
    StreamedExperts experts({.compressed = &partial, .device = Device::cpu()});
    FAIL() << "seven experts are missing";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "compressed");
    EXPECT_EQ(error.expected(), "a store with all 8 experts set");
  }
}

// A GPU's library without CUDA: the object cannot decompress there, and says so when it is made.
TEST(CompressedExpertsTest, NeedAGpuThatDecompresses) {
#if !PENSTOCK_WITH_CUDA
  FakeMachine machine;
  {
    const ExpertStore plain(machine.gpu(), shape);
    fill_store(plain);
    const auto compressed = compressed_copy(machine.gpu(), plain);
    EXPECT_THROW(StreamedExperts({.compressed = compressed.get(),
                                  .device = machine.gpu(),
                                  .device_bytes = bytes_for_compressed(shape, 4)}),
                 Unsupported);
  }
  EXPECT_TRUE(is_clean(machine.driver()));
#endif
}

}  // namespace
}  // namespace ps::test
