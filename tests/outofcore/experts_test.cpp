// StreamedExperts on the CPU, with the steps of moe(): results, policies, errors. Experts are used
// in place, or copied to slots as on a GPU.
#include "penstock/outofcore/experts.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "outofcore/expert_groups.h"
#include "outofcore/expert_steps.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "support/expert_arrays.h"
#include "support/expert_steps.h"
#include "support/temporary_directory.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

TEST(StreamedExpertsTest, GiveTheBitsOfMoe) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const ExpertShape shape = random_shape(seed, random);
    const ExpertStore store(Device::cpu(), shape);
    randomise(store, random);
    const std::size_t least = detail::least_expert_slots(static_cast<std::size_t>(shape.experts));
    const std::size_t slots = least + random() % static_cast<std::size_t>(3 * shape.experts);
    StreamedExperts in_place({.store = &store, .device = Device::cpu()});
    StreamedExperts copied({.store = &store,
                            .device = Device::cpu(),
                            .device_bytes = bytes_for(shape, slots),
                            .prefetch = ExpertPrefetch::previous},
                           {.copy_on_cpu = true});
    EXPECT_EQ(in_place.slots(), 0U);
    const Stream stream(Device::cpu());
    for (int call = 0; call < 8; ++call) {
      const std::int64_t layer = call % shape.layers;
      Arrays arrays = random_arrays(store, call, random);
      const auto wanted = arrays.wanted(stream);
      in_place.forward(layer, arrays.call(), stream);
      stream.synchronize();
      EXPECT_EQ(arrays.take_out(), wanted) << "in place, call " << call;
      copied.forward(layer, arrays.call(), stream);
      copied.synchronize();
      EXPECT_EQ(arrays.take_out(), wanted) << "copied, call " << call;
    }
    EXPECT_EQ(copied.statistics().failed_calls, 0U);
  }
}

// Several threads with streams of their own share the object.
TEST(StreamedExpertsTest, ServeSeveralThreads) {
  const Watchdog watchdog("ServeSeveralThreads");
  constexpr ExpertShape shape{.layers = 3, .experts = 8, .hidden = 16, .width = 8};
  const ExpertStore store(Device::cpu(), shape);
  std::mt19937 numbers(1);
  randomise(store, numbers);
  StreamedExperts experts({.store = &store,
                           .device = Device::cpu(),
                           .device_bytes = bytes_for(shape, 5),
                           .calls_in_flight = 64},
                          {.copy_on_cpu = true});
  std::vector<std::thread> threads;
  for (unsigned number = 1; number <= 3; ++number) {
    threads.emplace_back([&, number] { expect_the_bits_of_moe(experts, store, 40, number); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(experts.statistics().calls, 120U);
}

// Ways to wait for calls that are in flight; after each, the result is there, and the store may go.
TEST(StreamedExpertsTest, WaitForCallsOnTheCpu) {
  const Watchdog watchdog("WaitForCallsOnTheCpu");
  const ExpertShape shape{.layers = 1, .experts = 4, .hidden = 16, .width = 8};
  const TemporaryDirectory directory;
  const auto path = directory.path() / "experts";
  for (const bool from_disk : {false, true}) {
    for (const std::string way : {"destructor", "synchronize", "close"}) {
      if (from_disk && way == "close") continue;  // ends the call without its experts
      SCOPED_TRACE(way + (from_disk ? ", from a disk" : ""));
      auto store = std::make_unique<ExpertStore>(Device::cpu(), shape);
      std::mt19937 random(1);
      randomise(*store, random);
      pack(*store, path);
      auto disk = std::make_unique<DiskExpertStore>(
          Device::cpu(), path, DiskExpertStoreOptions{.host_bytes = 4 * store->block_bytes()});
      Arrays arrays(*store, 0, 20, 2, 0, random);
      auto experts = std::make_unique<StreamedExperts>(
          StreamedExpertsOptions{.store = from_disk ? nullptr : store.get(),
                                 .disk = from_disk ? disk.get() : nullptr,
                                 .device = Device::cpu()});
      const Stream stream(Device::cpu());
      const auto wanted = arrays.wanted(stream);
      stream.call([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
      experts->forward(0, arrays.call(), stream);
      if (way == "destructor") experts.reset();
      if (way == "synchronize") experts->synchronize();
      if (way == "close") experts->close();
      store.reset();
      disk.reset();
      EXPECT_EQ(arrays.take_out(), wanted);
      stream.synchronize();
    }
  }
}

TEST(StreamedExpertsTest, LimitCallsInFlightOnTheCpu) {
  const Watchdog watchdog("LimitCallsInFlightOnTheCpu");
  const ExpertShape shape{.layers = 1, .experts = 4, .hidden = 16, .width = 8};
  const ExpertStore store(Device::cpu(), shape);
  std::mt19937 random(1);
  randomise(store, random);
  const Arrays arrays(store, 0, 3, 2, 0, random);
  StreamedExperts experts({.store = &store, .device = Device::cpu(), .calls_in_flight = 2});
  const Stream stream(Device::cpu());
  std::atomic<bool> go = false;
  stream.call([&] {
    while (!go) std::this_thread::yield();
  });
  for (int i = 0; i < 2; ++i) experts.forward(0, arrays.call(), stream);
  std::atomic<bool> blocked = true;
  std::thread third([&] {
    EXPECT_THROW(experts.forward(0, arrays.call(), stream), ExpertsClosed);
    blocked = false;
  });
  std::thread closing([&] { experts.close(); });
  third.join();  // close() wakes it, although nothing has ended
  EXPECT_FALSE(blocked);
  go = true;
  closing.join();
  stream.synchronize();
}

// While other threads make calls without end, synchronize() waits only for those made before.
TEST(StreamedExpertsTest, SynchronizeDoesNotWaitForLaterCalls) {
  const ExpertShape shape{.layers = 1, .experts = 4, .hidden = 16, .width = 8};
  const ExpertStore store(Device::cpu(), shape);
  std::mt19937 random(1);
  randomise(store, random);
  const TemporaryDirectory directory;
  pack(store, directory.path() / "experts");
  const DiskExpertStore disk(Device::cpu(), directory.path() / "experts",
                             {.host_bytes = 4 * store.block_bytes()});
  // One per stream, of so many tokens that forward() waits for nothing.
  const std::array arrays{Arrays(store, 0, 100, 2, 0, random), Arrays(store, 0, 100, 2, 0, random)};
  struct Kind {
    const char* name;
    bool from_disk, copies;
  };
  for (const auto& [name, from_disk, copies] :
       {Kind{"in place", false, false}, Kind{"copied", false, true}, Kind{"disk", true, false}}) {
    const Watchdog watchdog(name);
    StreamedExperts experts({.store = from_disk ? nullptr : &store,
                             .disk = from_disk ? &disk : nullptr,
                             .device = Device::cpu(),
                             .device_bytes = bytes_for(shape, 4),
                             .calls_in_flight = 4},
                            {.copy_on_cpu = copies});
    const std::array streams{Stream(Device::cpu()), Stream(Device::cpu())};
    std::array<std::atomic<int>, 2> allowed{0, 0};
    std::atomic<bool> over = false;
    std::thread waiting;
    // One stream or the other always has a call that is held.
    for (std::size_t i = 0; !over; ++i) {
      const int turn = static_cast<int>(i / 2) + 1;
      streams[i % 2].call([&mine = allowed[i % 2], turn] {
        while (mine < turn) std::this_thread::yield();
      });
      experts.forward(0, arrays[i % 2].call(), streams[i % 2]);
      if (i == 0) {
        waiting = std::thread([&] {
          experts.synchronize();
          over = true;
        });
      } else {
        ++allowed[(i - 1) % 2];
      }
    }
    for (auto& each : allowed) each = 1 << 30;
    waiting.join();
    for (const Stream& stream : streams) stream.synchronize();
  }
}

// Its thread is the parent's.
TEST(StreamedExpertsTest, AForkedChildDoesNotWaitForTheThread) {
  const ExpertShape shape{.layers = 1, .experts = 4, .hidden = 16, .width = 8};
  const ExpertStore store(Device::cpu(), shape);
  std::mt19937 random(1);
  randomise(store, random);
  Arrays arrays(store, 0, 5, 2, 0, random);
  auto experts = std::make_unique<StreamedExperts>(
      StreamedExpertsOptions{
          .store = &store, .device = Device::cpu(), .device_bytes = bytes_for(shape, 4)},
      detail::ExpertHooks{.copy_on_cpu = true});
  const Stream stream(Device::cpu());
  const std::vector<std::uint8_t> wanted = arrays.wanted(stream);
  experts->forward(0, arrays.call(), stream);
  stream.synchronize();
  experts->synchronize();
  EXPECT_EQ(arrays.take_out(), wanted);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // ends a child that waits
    int refused = 0;
    for (const auto& use : std::initializer_list<std::function<void()>>{
             [&] { experts->forward(0, arrays.call(), stream); }, [&] { experts->clear(); },
             [&] { experts->synchronize(); },
             [&] { experts->prefetch(0, std::vector<std::int32_t>{1}); }}) {
      try {
        use();
      } catch (const Unsupported&) {
        ++refused;
      }
    }
    experts->close();
    experts.reset();
    _exit(refused == 4 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  experts->forward(0, arrays.call(), stream);
  stream.synchronize();
  EXPECT_EQ(arrays.take_out(), wanted);
}

TEST(ExpertStoreTest, ChecksItsShape) {
  const ExpertShape good{.layers = 2, .experts = 4, .hidden = 16, .width = 8};
  const auto with = [&](const auto& change) {
    ExpertShape shape = good;
    change(shape);
    return named([&] { ExpertStore::bytes_needed(shape); });
  };
  EXPECT_EQ(with([](auto&) {}), "");
  EXPECT_EQ(with([](auto& s) { s.layers = 0; }), "layers");
  EXPECT_EQ(with([](auto& s) { s.experts = 1025; }), "experts");
  EXPECT_EQ(with([](auto& s) { s.experts = -1; }), "experts");
  EXPECT_EQ(with([](auto& s) { s.hidden = 12; }), "hidden");
  EXPECT_EQ(with([](auto& s) { s.width = 0; }), "width");
  EXPECT_EQ(with([](auto& s) { s.dtype = DType::i32; }), "dtype");
  EXPECT_EQ(with([](auto& s) { s.layout = static_cast<GateUpLayout>(7); }), "layout");
  EXPECT_EQ(with([](auto& s) {
              s = {.layers = 1 << 16, .experts = 1024, .hidden = 1 << 20, .width = 1 << 19};
            }),
            "shape");
}

TEST(ExpertStoreTest, HasOneBlockPerExpert) {
  const ExpertShape shape{.layers = 2, .experts = 3, .hidden = 16, .width = 8, .down_bias = true};
  EXPECT_EQ(ExpertStore::block_bytes(shape), 512U + 256U + 256U);
  const ExpertStore store(Device::cpu(), shape);
  EXPECT_EQ(store.bytes(), 6 * 1024U);
  EXPECT_EQ(store.block(1, 2).data, store.block(0, 0).data + 5 * 1024);
  EXPECT_EQ(store.gate_up(1, 2).describe(), "bf16[16, 16] on pinned");
  EXPECT_EQ(store.down(0, 0).extent(1), 8);
  EXPECT_EQ(store.gate_up_bias(0, 0).elements(), 0);
  EXPECT_EQ(store.down_bias(0, 1).elements(), 16);
  EXPECT_EQ(named([&] { store.block(2, 0); }), "layer");
  EXPECT_EQ(named([&] { store.gate_up(0, -1); }), "expert");
  // Qwen3-30B: nothing is added.
  const ExpertShape qwen{.layers = 48, .experts = 128, .hidden = 2048, .width = 768};
  EXPECT_EQ(ExpertStore::block_bytes(qwen), std::size_t{3} * 2048 * 768 * 2);
}

TEST(ExpertStoreTest, ChecksTheCallersMemory) {
  const ExpertShape shape{.layers = 1, .experts = 2, .hidden = 16, .width = 8};
  const PinnedBuffer memory(Device::cpu(), ExpertStore::bytes_needed(shape) + 256);
  const MemoryView all = memory.view();
  const auto with = [&](MemoryView view) { return named([&] { ExpertStore(view, shape); }); };
  EXPECT_EQ(with(all.sub(0, all.bytes - 256)), "");
  EXPECT_EQ(with(all), "memory");
  EXPECT_EQ(with(all.sub(16, all.bytes - 256)), "memory");
  EXPECT_EQ(with({}), "memory");
  EXPECT_EQ(with({all.data, all.bytes - 256, {Memory::device, 0}}), "memory");
}

class StreamedExpertsErrors : public testing::Test {
 protected:
  std::string made(const std::function<void(StreamedExpertsOptions&)>& change) const {
    StreamedExpertsOptions options{
        .store = &store, .device = Device::cpu(), .device_bytes = bytes_for(shape, 4)};
    change(options);
    return named([&] { StreamedExperts(std::move(options), {.copy_on_cpu = true}); });
  }
  // What is wrong with a call, on objects that copy and that do not.
  std::string called(std::int64_t layer, const std::function<void(MoeOptions&)>& change) {
    std::mt19937 random(1);
    const Arrays arrays(store, 0, 5, 2, 0, random);
    MoeOptions call = arrays.call();
    change(call);
    StreamedExperts in_place({.store = &store, .device = Device::cpu()});
    StreamedExperts copied(
        {.store = &store, .device = Device::cpu(), .device_bytes = bytes_for(shape, 4)},
        {.copy_on_cpu = true});
    const Stream stream(Device::cpu());
    const std::string first = named([&] { in_place.forward(layer, call, stream); });
    const std::string second = named([&] { copied.forward(layer, call, stream); });
    stream.synchronize();
    copied.synchronize();
    EXPECT_EQ(first, second);
    return second;
  }

  ExpertShape shape{.layers = 2, .experts = 4, .hidden = 16, .width = 8};
  ExpertStore store{Device::cpu(), shape};
};

TEST_F(StreamedExpertsErrors, OfOptions) {
  EXPECT_EQ(made([](auto&) {}), "");
  EXPECT_EQ(made([](auto& o) { o.store = nullptr; }), "store");
  EXPECT_EQ(made([](auto& o) { o.calls_in_flight = 0; }), "calls_in_flight");
  EXPECT_EQ(made([&](auto& o) { o.device_bytes = bytes_for(shape, 2); }), "");
  EXPECT_EQ(made([&](auto& o) { o.device_bytes = bytes_for(shape, 2) - 1; }), "device_bytes");
  EXPECT_EQ(made([](auto& o) { o.device_bytes = 0; }), "device_bytes");
  EXPECT_EQ(made([](auto& o) { o.pinned = {{0, 1}, {1, 2}}; }), "");
  EXPECT_EQ(made([](auto& o) { o.pinned = {{0, 1}, {1, 2}, {1, 3}}; }), "device_bytes");
  EXPECT_EQ(made([](auto& o) { o.pinned = {{0, 4}}; }), "pinned");
  EXPECT_EQ(made([](auto& o) { o.pinned = {{-1, 0}}; }), "pinned");
}

TEST_F(StreamedExpertsErrors, OfTooLittleMemorySayHowMuchIsNeeded) {
  try {
    StreamedExperts experts({.store = &store, .device = Device::cpu(), .device_bytes = 4096},
                            {.copy_on_cpu = true});
    FAIL() << "4096 bytes are not enough";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(error.expected().find(std::to_string(StreamedExperts::least_bytes(shape))),
              std::string::npos)
        << error.what();
    EXPECT_NE(error.expected().find("2 slots"), std::string::npos) << error.what();
  }
}

TEST_F(StreamedExpertsErrors, OfCalls) {
  EXPECT_EQ(called(0, [](auto&) {}), "");
  EXPECT_EQ(called(2, [](auto&) {}), "layer");
  EXPECT_EQ(called(-1, [](auto&) {}), "layer");
  EXPECT_EQ(called(0, [](auto& o) { o.gate_up = o.x; }), "gate_up");
  EXPECT_EQ(called(0, [](auto& o) { o.down = o.x; }), "down");
  EXPECT_EQ(called(0, [](auto& o) { o.slots = o.ids; }), "slots");
  EXPECT_EQ(called(0, [](auto& o) { o.gate_up_bias = o.x; }), "gate_up_bias");
  EXPECT_EQ(called(0, [](auto& o) { o.down_bias = o.x; }), "down_bias");
  EXPECT_EQ(called(0, [](auto& o) { o.pool = nullptr; }), "workspace");
  EXPECT_EQ(called(0, [](auto& o) { o.x = TensorView(o.x.data(), DType::bf16, {10, 8}); }),
            "gate_up");
  EXPECT_EQ(called(0, [](auto& o) { o.out = o.x; }), "out");
  EXPECT_EQ(called(0, [](auto& o) { o.ids = TensorView(o.ids.data(), DType::i64, {2, 5}); }),
            "ids");
}

TEST_F(StreamedExpertsErrors, OfHints) {
  StreamedExperts experts(
      {.store = &store, .device = Device::cpu(), .device_bytes = bytes_for(shape, 4)},
      {.copy_on_cpu = true});
  const Stream stream(Device::cpu());
  std::vector<std::int32_t> likely{4};
  EXPECT_EQ(named([&] { experts.prefetch(0, likely); }), "experts");
  likely = {0, 3};
  EXPECT_EQ(named([&] { experts.prefetch(2, likely); }), "layer");
  EXPECT_EQ(named([&] { experts.prefetch(1, likely); }), "");
  std::vector<float> floats(4);
  EXPECT_EQ(
      named([&] { experts.prefetch(0, TensorView(floats.data(), DType::f32, {2, 2}), stream); }),
      "ids");
  std::vector<std::int32_t> ids{0, 9, -1, 2};
  experts.prefetch(0, TensorView(ids.data(), DType::i32, {2, 2}), stream);
  experts.synchronize();
}

class WrongPolicy final : public CachePolicy {
 public:
  explicit WrongPolicy(CacheKey key) : key_(key) {}
  void added(CacheKey /*key*/) override {}
  void used(CacheKey /*key*/) override {}
  void removed(CacheKey /*key*/) noexcept override {}
  void victims(const std::function<bool(CacheKey)>& visit) const override { visit(key_); }

 private:
  const CacheKey key_;
};

TEST_F(StreamedExpertsErrors, APolicyMustNameKeysOfTheCache) {
  std::mt19937 random(1);
  const Stream stream(Device::cpu());
  const auto all = static_cast<CacheKey>(shape.layers * shape.experts);
  for (const CacheKey wrong : {all - 1, all, ~CacheKey{0}}) {
    const Arrays arrays(store, 0, 40, 2, 0, random);
    StreamedExperts experts({.store = &store,
                             .device = Device::cpu(),
                             .device_bytes = bytes_for(shape, 2),
                             .policy = std::make_unique<WrongPolicy>(wrong)},
                            {.copy_on_cpu = true});
    EXPECT_EQ(named([&] {
                experts.forward(0, arrays.call(), stream);
                experts.synchronize();
              }),
              "policy");
    stream.synchronize();
  }
}

TEST_F(StreamedExpertsErrors, AClosedObjectRefusesCalls) {
  std::mt19937 random(1);
  const Arrays arrays(store, 0, 5, 2, 0, random), empty(store, 0, 0, 2, 0, random);
  const std::vector<std::int32_t> likely{1};
  const Stream stream(Device::cpu());
  for (const bool copies : {false, true}) {
    StreamedExperts experts(
        {.store = &store, .device = Device::cpu(), .device_bytes = bytes_for(shape, 4)},
        {.copy_on_cpu = copies});
    experts.forward(0, empty.call(), stream);
    experts.close();
    EXPECT_THROW(experts.forward(0, arrays.call(), stream), ExpertsClosed);
    EXPECT_THROW(experts.forward(0, empty.call(), stream), ExpertsClosed);
    EXPECT_THROW(experts.prefetch(0, likely), ExpertsClosed);
    EXPECT_THROW(experts.prefetch(0, arrays.call().ids, stream), ExpertsClosed);
    EXPECT_THROW(experts.clear(), ExpertsClosed);
    experts.synchronize();
  }
}

}  // namespace
}  // namespace ps::test
