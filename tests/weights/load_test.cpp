// Checkpoints loaded into device memory, on the CPU and on a fake GPU.
#include "penstock/weights/load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "support/expect_clean.h"
#include "support/failing_reads.h"
#include "support/failure_of.h"
#include "support/fake_machine.h"
#include "support/temporary_directory.h"
#include "support/watchdog.h"
#include "weights/load_plan.h"
#include "weights/support.h"

namespace ps::test {
namespace {

const std::vector<WeightSpec> specs{{"a", WeightType::bf16, {100, 33}},
                                    {"b", WeightType::u8, {0}},
                                    {"c", WeightType::f32, {9000}},
                                    {"d", WeightType::u8, {1}},
                                    {"e", WeightType::i64, {5000}}};

class Loads : public testing::Test {
 protected:
  void SetUp() override {
    bytes = write_random(here.path() / "model.safetensors", specs, {.shard_bytes = 40'000});
    weights.emplace(here.path());
    ASSERT_GT(weights->files().size(), 1U);
  }

  Watchdog watchdog{"Loads"};
  TemporaryDirectory here;
  std::vector<std::vector<std::byte>> bytes;
  std::optional<Weights> weights;
};

TEST_F(Loads, EveryByteArrivesOnAnyDevice) {
  FakeMachine machine;
  for (const Device& device : {Device::cpu(), machine.gpu()}) {
    std::mt19937 random(3);
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<LoadTarget> targets;
      std::vector<DeviceBuffer> buffers;
      for (std::size_t i = 0; i < specs.size(); ++i) {
        if (random() % 4 == 0) continue;
        buffers.emplace_back(device, std::max<std::size_t>(bytes[i].size(), 1));
        targets.push_back({.tensor = i, .to = buffers.back().view().sub(0, bytes[i].size())});
      }
      std::ranges::shuffle(targets, random);
      const std::size_t slot_bytes = 4096 * (1 + random() % 5);
      std::uint64_t last = 0, total = 0;
      load(*weights, targets,
           {.device = device,
            .slots = 1 + random() % 4,
            .slot_bytes = slot_bytes,
            .progress = [&](std::uint64_t done, std::uint64_t all) {
              EXPECT_GE(done, last);
              last = done;
              total = all;
            }});
      EXPECT_EQ(last, total);
      for (const LoadTarget& target : targets) {
        const auto& expected = bytes[target.tensor];
        const PinnedBuffer back(device, std::max<std::size_t>(expected.size(), 1));
        const Stream stream(device);
        copy(back.view().sub(0, expected.size()), target.to, stream);
        stream.synchronize();
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), back.view().data))
            << "tensor " << target.tensor << ", trial " << trial << " on " << device.name();
      }
    }
  }
}

TEST_F(Loads, ABadBlockEndsALoad) {
  FakeMachine machine;
  const WeightInfo& tensor = weights->tensors()[2];
  const std::string path = weights->files()[tensor.file].path();
  const std::uint64_t at = (tensor.offset + tensor.bytes / 2) / 4096 * 4096;
  for (const Device& device : {Device::cpu(), machine.gpu()}) {
    const DeviceBuffer memory(device, tensor.bytes);
    const std::array targets{LoadTarget{.tensor = 2, .to = memory.view()}};
    const LoadOptions options{.device = device, .slots = 2, .slot_bytes = 8192};
    {
      const FailingReads failing(path, at);
      const auto failure = failure_of([&] { load(*weights, targets, options); });
      EXPECT_TRUE(is<SystemError>(failure)) << text(failure);
      expect_message(failure, path + " at byte " + std::to_string(at) + ": Input/output error");
    }
    load(*weights, targets, options);
    const PinnedBuffer back(device, tensor.bytes);
    const Stream stream(device);
    copy(back.view(), memory.view(), stream);
    stream.synchronize();
    EXPECT_EQ(std::memcmp(back.view().data, bytes[2].data(), tensor.bytes), 0);
  }
  EXPECT_TRUE(is_clean(machine.driver()));
}

TEST_F(Loads, NeighboursAreReadInOneGoFromWholeBlocks) {
  const auto path = here.path() / "plan.safetensors";
  write_random(path, {{"a", WeightType::u8, {1000}},
                      {"b", WeightType::u8, {2000}},
                      {"left out", WeightType::u8, {10}},
                      {"c", WeightType::u8, {20'000}}});
  const Weights plain(path);
  std::vector<std::byte> memory(20'000);
  std::vector<detail::LoadRange> ranges;
  for (const std::size_t i : {3, 0, 1}) {
    const WeightInfo& tensor = plain.tensors()[i];
    ranges.push_back({0, tensor.offset, in(memory).sub(0, tensor.bytes)});
  }
  const auto pieces = detail::plan_load(ranges, 8192);
  const std::uint64_t start = plain.tensors()[0].offset;
  ASSERT_GE(pieces.size(), 3U);
  EXPECT_EQ(pieces[0].offset, start);
  EXPECT_EQ(pieces[0].bytes, 3000U);
  EXPECT_EQ(pieces[0].copies.size(), 2U);
  EXPECT_EQ(pieces[1].offset, start + 3010);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].in_slot, pieces[i].offset % 4096);
    EXPECT_LE(pieces[i].in_slot + pieces[i].bytes, 8192U);
    EXPECT_TRUE(i < 2 || pieces[i].offset % 4096 == 0) << "continues at a block";
    total += pieces[i].bytes;
  }
  EXPECT_EQ(total, 23'000U);
}

TEST_F(Loads, TargetsAreCheckedBeforeAnythingIsRead) {
  const Device cpu = Device::cpu();
  std::vector<std::byte> memory(bytes[0].size());
  const auto refused = [&](const std::vector<LoadTarget>& targets, LoadOptions options,
                           const std::string& message) {
    options.device = cpu;
    const auto failure = failure_of([&] { load(*weights, targets, options); });
    EXPECT_TRUE(is<InvalidArgument>(failure)) << text(failure);
    EXPECT_NE(text(failure).find(message), std::string::npos) << text(failure);
  };
  const LoadTarget fine{.tensor = 0, .to = in(memory)};
  refused({fine, {.tensor = 99, .to = in(memory)}}, {},
          "targets[1].tensor: expected an index below 5");
  refused({fine, {.tensor = 0, .to = in(memory).sub(0, 10)}}, {},
          "targets[1].to: expected 6600 bytes for \"a\"");
  refused({fine, {.tensor = 0, .to = {nullptr, 6600, {Memory::host}}}}, {},
          "targets[1].to: expected a pointer");
  refused({fine, {.tensor = 0, .to = {memory.data(), 6600, {Memory::device, 3}}}}, {},
          "targets[1].to: expected memory of cpu, given cuda:3");
  refused({fine, {.tensor = 0, .to = in(memory), .first_row = 1}}, {}, "targets[1].to");
  refused({fine, {.tensor = 0, .to = in(memory), .first_row = 101}}, {}, "targets[1].first_row");
  refused({fine, {.tensor = 0, .to = in(memory), .rows = 101}}, {}, "targets[1].rows");
  refused({fine}, {.slots = 0}, "slots");
  refused({fine}, {.slot_bytes = 0}, "slot_bytes");
  refused({fine}, {.slot_bytes = 5000}, "slot_bytes");
  load(*weights, {}, {.device = cpu});
  load(*weights, {&fine, 1}, {.device = cpu});
  EXPECT_EQ(memory, bytes[0]);

  // Rows 90 to 99, of 66 bytes each.
  const LoadTarget rows{.tensor = 0, .to = in(memory).sub(0, 660), .first_row = 90};
  load(*weights, {&rows, 1}, {.device = cpu});
  EXPECT_EQ(std::memcmp(memory.data(), bytes[0].data() + 90 * 66, 660), 0);
}

TEST_F(Loads, AFileThatEndsEarlyOrChangesFails) {
  std::vector<std::byte> memory(bytes[4].size());
  const LoadTarget target{.tensor = 4, .to = in(memory)};
  const std::string path = weights->files()[weights->tensors()[4].file].path();
  using namespace std::chrono_literals;
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + 1s);
  const auto changed = failure_of([&] { load(*weights, {&target, 1}, {.device = Device::cpu()}); });
  EXPECT_TRUE(is<SystemError>(changed)) << text(changed);
  EXPECT_NE(text(changed).find("modified since it was opened"), std::string::npos);
  std::filesystem::resize_file(path, 20'000);
  const auto ended = failure_of([&] { load(*weights, {&target, 1}, {.device = Device::cpu()}); });
  EXPECT_TRUE(is<SystemError>(ended)) << text(ended);
  EXPECT_NE(text(ended).find(path + ", which ends at byte 20000"), std::string::npos)
      << text(ended);
}

TEST_F(Loads, CancelledAnywhereAndAgain) {
  std::vector<std::byte> memory(bytes[4].size());
  const LoadTarget target{.tensor = 4, .to = in(memory)};
  std::stop_source before;
  before.request_stop();
  const auto with = [&](std::stop_token stop, std::function<void()> progress) {
    return failure_of([&] {
      load(*weights, {&target, 1},
           {.device = Device::cpu(),
            .slots = 2,
            .slot_bytes = 4096,
            .stop = std::move(stop),
            .progress = [&](std::uint64_t, std::uint64_t) { progress(); }});
    });
  };
  EXPECT_TRUE(is<Cancelled>(with(before.get_token(), [] {})));
  EXPECT_TRUE(is<std::domain_error>(with({}, [] { throw std::domain_error("progress"); })));
  std::mt19937 random(5);
  for (int trial = 0; trial < 100; ++trial) {
    std::stop_source stop;
    std::jthread stopper([&, spins = random() % 200'000] {
      for (unsigned i = 0; i < spins; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      stop.request_stop();
    });
    const auto failure = with(stop.get_token(), [] {});
    EXPECT_TRUE(!failure || is<Cancelled>(failure)) << trial << ": " << text(failure);
  }
  std::ranges::fill(memory, std::byte{0xEE});
  EXPECT_EQ(with({}, [] {}), nullptr);
  EXPECT_EQ(memory, bytes[4]);
}

TEST_F(Loads, AnAllocationFails) {
  FakeMachine machine;
  FakeDriver& driver = machine.driver();
  bool struck = true;
  for (std::uint64_t n = 1; struck; ++n) {
    watchdog.step("allocation " + std::to_string(n));
    {
      const DeviceBuffer buffer(machine.gpu(), bytes[2].size());
      const LoadTarget target{.tensor = 2, .to = buffer.view()};
      driver.fail_call(n, cuda::memory_allocation, allocating_calls);
      const auto failure = failure_of([&] {
        load(*weights, {&target, 1}, {.device = machine.gpu(), .slots = 2, .slot_bytes = 16 * KiB});
      });
      struck = driver.fault_struck();
      driver.disarm();
      EXPECT_EQ(struck, failure != nullptr) << n;
      EXPECT_TRUE(!failure || is<OutOfMemory>(failure)) << n << ": " << text(failure);
    }
    ASSERT_TRUE(is_clean(driver)) << n;
  }
}

}  // namespace
}  // namespace ps::test
