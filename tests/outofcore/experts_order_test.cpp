// What StreamedExperts copies, when, and into which slots: with steps that compute nothing, on the
// CPU and on a fake GPU, from memory, from a disk, and from compressed experts.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "host/backend.h"
#include "outofcore/expert_groups.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/outofcore/experts.h"
#include "support/expect_clean.h"
#include "support/expert_steps.h"
#include "support/fake_machine.h"
#include "support/temporary_directory.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

constexpr ExpertShape small{.layers = 3, .experts = 12, .hidden = 8, .width = 8};

struct Source {
  std::size_t host_slots = 0;  // of experts on a disk
  bool compressed = false;
};

// Everything of a model but its numbers. Views of tensors point to memory that the steps read.
class OrderModel {
 public:
  OrderModel(const Device& device, FakeDriver* driver, std::size_t slots, std::uint32_t seed,
             unsigned most_delay_us, StreamedExpertsOptions options = {}, Source source = {})
      : device_(device),
        store_(device, small),
        steps_(std::make_shared<RecordingSteps>(store_, driver, seed, most_delay_us)),
        random_(seed),
        stream_(device),
        pool_(device) {
    fill_store(store_);
    if (source.host_slots > 0) {
      pack(store_, directory_.path() / "experts");
      disk_.emplace(
          device, directory_.path() / "experts",
          DiskExpertStoreOptions{.host_bytes = source.host_slots * store_.block_bytes(),
                                 .queue = {.engine = FileEngine::threads, .in_flight = 3}});
    }
    if (source.compressed) compressed_ = compressed_copy(device, store_);
    options.store = disk_ || compressed_ ? nullptr : &store_;
    options.disk = disk_ ? &*disk_ : nullptr;
    options.compressed = compressed_.get();
    options.device = device;
    options.device_bytes = bytes_for(slots, options);
    experts_.emplace(std::move(options), detail::ExpertHooks{.steps = steps_, .copy_on_cpu = true});
    EXPECT_EQ(experts_->slots(), slots);
  }
  ~OrderModel() { drop(); }

  static std::size_t bytes_for(std::size_t slots, const StreamedExpertsOptions& options) {
    const std::size_t none = StreamedExperts::least_bytes(small, 0, options.calls_in_flight,
                                                          options.compressed != nullptr) -
                             detail::least_expert_slots(12) * ExpertStore::block_bytes(small);
    return none + slots * ExpertStore::block_bytes(small);
  }

  // Work on the memory of calls must be over before the memory goes.
  void drop() {
    if (!experts_) return;
    experts_.reset();
    stream_.impl().drain();
    memory_.clear();
  }

  // A call whose tokens choose these experts.
  void call(std::int64_t layer, const std::vector<std::int32_t>& chosen, bool whole = true) {
    steps_->expect(layer, whole);
    experts_->forward(layer, options(chosen), stream_);
  }
  // Of `tokens` tokens with two random experts each, of which low numbers are more likely.
  void random_call(std::int64_t layer, std::int64_t tokens, bool whole = true) {
    std::vector<std::int32_t> chosen;
    for (std::int64_t i = 0; i < 2 * tokens; ++i) {
      const auto experts = static_cast<unsigned>(store_.shape().experts);
      chosen.push_back(
          static_cast<std::int32_t>(std::min(random_() % experts, random_() % experts)));
    }
    call(layer, chosen, whole);
  }

  // A call's views: ids in memory of the device that is used again after 100 calls.
  MoeOptions options(const std::vector<std::int32_t>& chosen) {
    const auto tokens = static_cast<std::int64_t>(chosen.size() / 2);
    if (memory_.size() < 100) memory_.emplace_back(device_, 4096 + 64 * 1024);
    const MemoryView memory = memory_[calls_++ % 100].view();
    if (calls_ > 100 && calls_ % 100 == 1) experts_->synchronize();
    std::copy(chosen.begin(), chosen.end(), memory.as<std::int32_t>());
    const Place place = device_.place();
    auto* rows = memory.data + 4096;
    return {.x = TensorView(rows, DType::bf16, {tokens, 8}, place),
            .ids = TensorView(memory.data, DType::i32, {tokens, 2}, place),
            .weights = TensorView(rows + 16384, DType::f32, {tokens, 2}, place),
            .out = TensorView(rows + 32768, DType::bf16, {tokens, 8}, place),
            .pool = &pool_};
  }

  // The fewest and the most bytes that the copy of an expert has.
  std::pair<std::size_t, std::size_t> copied_bytes() const {
    if (!compressed_) return {store_.block_bytes(), store_.block_bytes()};
    std::vector<std::size_t> bytes;
    for (std::int64_t layer = 0; layer < 3; ++layer) {
      for (std::int64_t e = 0; e < 12; ++e) bytes.push_back(compressed_->block(layer, e).bytes);
    }
    return {*std::min_element(bytes.begin(), bytes.end()),
            *std::max_element(bytes.begin(), bytes.end())};
  }
  std::filesystem::path file() const { return directory_.path() / "experts"; }
  StreamedExperts& experts() { return *experts_; }
  RecordingSteps& steps() { return *steps_; }
  const Stream& stream() const { return stream_; }
  std::mt19937& random() { return random_; }

 private:
  Device device_;
  ExpertStore store_;
  TemporaryDirectory directory_;
  std::optional<DiskExpertStore> disk_;
  std::unique_ptr<CompressedExpertStore> compressed_;
  std::shared_ptr<RecordingSteps> steps_;
  std::mt19937 random_;
  Stream stream_;
  Pool pool_;
  std::vector<DeviceBuffer> memory_;
  std::size_t calls_ = 0;
  std::optional<StreamedExperts> experts_;
};

std::vector<std::int32_t> all_experts(int times = 1) {
  std::vector<std::int32_t> chosen;
  for (int i = 0; i < times; ++i) {
    for (std::int32_t e = 0; e < 12; ++e) chosen.push_back(e);
  }
  return chosen;
}

// Random layers, numbers of tokens, cache sizes and prefetches.
void run_randomly(OrderModel& model, int calls, bool whole = true) {
  std::mt19937& random = model.random();
  for (int i = 0; i < calls; ++i) {
    const auto layer = random() % 4 == 0 ? random() % 3 : static_cast<unsigned>(i) % 3;
    if (random() % 5 == 0) {
      const std::vector<std::int32_t> guess{static_cast<std::int32_t>(random() % 12),
                                            static_cast<std::int32_t>(random() % 12)};
      model.experts().prefetch((layer + 1) % 3, guess);
    }
    const bool long_call = random() % 4 == 0;
    model.random_call(layer, 1 + random() % (long_call ? 400 : 6), whole);
  }
}

std::unique_ptr<CachePolicy> policy_number(unsigned number) {
  return number % 3 == 0 ? lru_policy() : number % 3 == 1 ? frequency_policy() : nullptr;
}

struct Place {
  const char* name;
  bool gpu = false, disk = false, compressed = false;
};

class ExpertsOrder : public testing::TestWithParam<Place> {
 protected:
  void with_model(std::uint32_t seed, std::size_t slots, StreamedExpertsOptions options,
                  const std::function<void(OrderModel&)>& use) {
    const Source source{.host_slots = GetParam().disk ? 2 + seed % 5 : 0,
                        .compressed = GetParam().compressed};
    if (!GetParam().gpu) {
      OrderModel model(Device::cpu(), nullptr, slots, seed, 50, std::move(options), source);
      return use(model);
    }
    FakeMachine machine({.stream_wait_value = seed % 4 != 3, .seed = seed, .max_delay_us = 40});
    {
      OrderModel model(machine.gpu(), &machine.driver(), slots, seed, 0, std::move(options),
                       source);
      use(model);
    }
    EXPECT_TRUE(is_clean(machine.driver()));
  }
};

INSTANTIATE_TEST_SUITE_P(On, ExpertsOrder,
                         testing::Values(Place{"TheCpu"}, Place{"AFakeGpu", true},
                                         Place{"TheCpuFromADisk", false, true},
                                         Place{"AFakeGpuFromADisk", true, true},
                                         Place{"TheCpuCompressed", false, false, true},
                                         Place{"AFakeGpuCompressed", true, false, true}),
                         [](const auto& on) { return on.param.name; });

TEST_P(ExpertsOrder, EveryExpertIsComputedOnceFromItsOwnBytes) {
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const std::size_t slots = seed % 3 == 0 ? 2 : 2 + random() % 35;
    with_model(seed, slots,
               {.policy = policy_number(seed),
                .prefetch = seed % 2 == 0 ? ExpertPrefetch::previous : ExpertPrefetch::none,
                .calls_in_flight = 1 + random() % 8},
               [&](OrderModel& model) {
                 run_randomly(model, 60);
                 model.experts().synchronize();
                 EXPECT_EQ(model.steps().wrong(), "") << "with seed " << seed;
                 EXPECT_EQ(model.steps().calls(), 60U);
                 const ExpertStatistics counts = model.experts().statistics();
                 EXPECT_EQ(counts.calls, 60U);
                 EXPECT_EQ(counts.needed, counts.hits + counts.late + counts.misses);
                 const auto [least, most] = model.copied_bytes();
                 EXPECT_GE(counts.bytes, (counts.misses + counts.prefetched) * least);
                 EXPECT_LE(counts.bytes, (counts.misses + counts.prefetched) * most);
                 EXPECT_EQ(counts.failed_calls, 0U);
               });
  }
}

TEST_P(ExpertsOrder, WhatIsOnTheDeviceIsNotCopiedAgain) {
  with_model(1, 36, {.policy = lru_policy(), .records = 10}, [&](OrderModel& model) {
    for (int round = 0; round < 2; ++round) {
      for (int layer = 0; layer < 3; ++layer) model.call(layer, {1, 5, 5, 7});
      model.experts().synchronize();
    }
    EXPECT_EQ(model.steps().wrong(), "");
    const ExpertStatistics counts = model.experts().statistics();
    EXPECT_EQ(counts.misses, 9U);
    EXPECT_EQ(counts.hits, 9U);
    EXPECT_EQ(counts.evicted, 0U);
    const auto records = model.experts().records();
    ASSERT_EQ(records.size(), 6U);
    EXPECT_EQ(records[4].layer, 1);
    EXPECT_EQ(records[4].tokens, 2);
    EXPECT_EQ(records[4].needed, 3U);
    EXPECT_EQ(records[4].hits, 3U);
    EXPECT_EQ(records[4].groups, 1U);
    EXPECT_LE(records[4].enqueued_ns, records[4].routed_ns);
    EXPECT_LE(records[4].routed_ns, records[4].answered_ns);
  });
}

TEST_P(ExpertsOrder, AClearedCacheIsEmpty) {
  with_model(8, 20, {.policy = lru_policy(), .pinned = {{0, 1}}}, [&](OrderModel& model) {
    for (int round = 0; round < 4; ++round) {
      model.call(0, {1, 5, 5, 7});
      model.call(2, {1, 5});
      if (round % 2 == 0) model.experts().synchronize();
      model.experts().clear();
    }
    model.experts().synchronize();
    EXPECT_EQ(model.steps().wrong(), "");
    const ExpertStatistics counts = model.experts().statistics();
    EXPECT_GE(counts.misses, 4U * 5U - 1U);
    EXPECT_EQ(counts.needed, 20U);
  });
}

TEST_P(ExpertsOrder, TheLeastRecentlyUsedIsEvicted) {
  with_model(2, 4, {.policy = lru_policy()}, [&](OrderModel& model) {
    for (const std::vector<std::int32_t>& chosen :
         {std::vector<std::int32_t>{0, 1}, {2, 3}, {0, 0}, {4, 4}, {0, 2}, {1, 1}}) {
      model.call(0, chosen);
      model.experts().synchronize();
    }
    // 4 evicts 1, and then 1 evicts 3.
    const ExpertStatistics counts = model.experts().statistics();
    EXPECT_EQ(counts.misses, 6U);
    EXPECT_EQ(counts.hits, 3U);
    EXPECT_EQ(counts.evicted, 2U);
  });
}

TEST_P(ExpertsOrder, PinnedExpertsStay) {
  with_model(3, 4, {.policy = lru_policy(), .pinned = {{1, 7}, {0, 3}, {0, 3}}},
             [&](OrderModel& model) {
               for (int round = 0; round < 5; ++round) {
                 for (int layer = 0; layer < 3; ++layer) model.call(layer, {0, 1, 2, 4, 5, 6});
               }
               model.experts().synchronize();
               const ExpertStatistics before = model.experts().statistics();
               model.call(1, {7, 7});
               model.call(0, {3, 3});
               model.experts().synchronize();
               EXPECT_EQ(model.steps().wrong(), "");
               EXPECT_EQ(model.experts().statistics().hits, before.hits + 2);
               EXPECT_EQ(model.experts().statistics().misses, before.misses);
             });
}

TEST_P(ExpertsOrder, HintsAreCopiedBeforeTheCall) {
  with_model(4, 12, {}, [&](OrderModel& model) {
    const std::vector<std::int32_t> likely{3, 9};
    model.experts().prefetch(2, likely);
    while (model.experts().statistics().prefetched < 2) std::this_thread::yield();
    model.call(2, {3, 9});
    const MoeOptions ids = model.options({4, 6, 4, 4});
    model.experts().prefetch(1, ids.ids, model.stream());
    while (model.experts().statistics().prefetched < 4) std::this_thread::yield();
    model.call(1, {4, 6});
    model.experts().synchronize();
    const ExpertStatistics counts = model.experts().statistics();
    EXPECT_EQ(counts.misses, 0U);
    EXPECT_EQ(counts.hits + counts.late, 4U);
    EXPECT_EQ(counts.wasted, 0U);
    EXPECT_EQ(model.steps().wrong(), "");
  });
}

TEST_P(ExpertsOrder, ThePreviousChoiceIsPrefetched) {
  with_model(5, 8, {.policy = lru_policy(), .prefetch = ExpertPrefetch::previous},
             [&](OrderModel& model) {
               for (int token = 0; token < 4; ++token) {
                 for (int layer = 0; layer < 3; ++layer) {
                   model.call(layer, {0, 1, 2, 3});
                   model.experts().synchronize();
                 }
               }
               EXPECT_EQ(model.steps().wrong(), "");
               const ExpertStatistics counts = model.experts().statistics();
               EXPECT_GT(counts.prefetched, 8U) << "two layers of four experts fit, not three";
             });
}

// Calls of many tokens do not wait for their routing, and the next layers are copied ahead.
TEST_P(ExpertsOrder, PassesOverAPromptGoAhead) {
  with_model(6, 18, {.policy = lru_policy()}, [&](OrderModel& model) {
    for (int pass = 0; pass < 3; ++pass) {
      for (int layer = 0; layer < 3; ++layer) model.call(layer, all_experts(32));
      model.experts().synchronize();
    }
    EXPECT_EQ(model.steps().wrong(), "");
    const ExpertStatistics counts = model.experts().statistics();
    EXPECT_EQ(counts.needed, 9U * 12U);
    EXPECT_GT(counts.hits + counts.late, 0U);
  });
}

// Experts without tokens are not waited for, also if the call did not wait for its routing.
TEST_P(ExpertsOrder, ExpertsWithoutTokensMayBeLeftOut) {
  with_model(7, 12, {}, [&](OrderModel& model) {
    std::vector<std::int32_t> chosen(600, 3);
    model.call(0, chosen);
    model.experts().synchronize();
    EXPECT_EQ(model.steps().wrong(), "");
    EXPECT_EQ(model.steps().missing(), 0U);
  });
}

TEST_P(ExpertsOrder, ObjectsGoWhileCallsAreInFlight) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    with_model(seed, 2 + seed, {}, [&](OrderModel& model) {
      run_randomly(model, 15);
      model.drop();
      EXPECT_EQ(model.steps().calls(), 15U);
      EXPECT_EQ(model.steps().wrong(), "");
    });
  }
}

TEST_P(ExpertsOrder, ClosingEndsCallsThatAreInFlight) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    with_model(seed, 2 + seed, {}, [&](OrderModel& model) {
      run_randomly(model, 15, false);
      model.experts().close();
      model.experts().close();
      model.stream().synchronize();
      EXPECT_EQ(model.steps().calls(), 15U) << "the stream is not held";
      EXPECT_EQ(model.steps().wrong(), "") << "what was computed is right";
      EXPECT_THROW(model.call(0, {1, 2}), std::runtime_error);
      const std::vector<std::int32_t> likely{1};
      EXPECT_THROW(model.experts().prefetch(0, likely), ExpertsClosed);
    });
  }
}

// 10^5 calls take no more memory than 10^3. Sanitized builds make fewer.
TEST(ExpertsEndurance, DecodeStepsTakeNoMemory) {
  const Watchdog watchdog("DecodeStepsTakeNoMemory", std::chrono::seconds(200));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int steps = 2000;
#else
  constexpr int steps = 100'000;
#endif
  OrderModel model(Device::cpu(), nullptr, 14, 1, 0,
                   {.policy = frequency_policy({.remembered = 36})});
  const auto some = [&](int count) {
    for (int i = 0; i < count; ++i) model.random_call(i % 3, 1);
    model.experts().synchronize();
  };
  some(1000);
  const std::uint64_t allocations = Device::cpu().allocations();
  const std::size_t heap = mallinfo2().uordblks;
  some(steps);
  EXPECT_EQ(model.steps().wrong(), "");
  EXPECT_EQ(Device::cpu().allocations(), allocations);
  EXPECT_LE(mallinfo2().uordblks, heap + 256 * 1024);
}

// Fails call after call of the driver table while calls of the model are in flight. Nothing hangs,
// nothing leaks, no expert is computed from wrong bytes, and the object works afterwards.
void survive_every_failing_call(Source source) {
  std::uint64_t struck = 0;
  for (std::uint64_t n = 1; n <= 400; n += n < 120 ? 1 : 13) {
    const Watchdog watchdog("call " + std::to_string(n));
    FakeMachine machine({.seed = n, .max_delay_us = 10});
    bool reported = false;
    const auto guarded = [&](const auto& function) {
      try {
        function();
      } catch (const std::exception&) {
        reported = true;
      }
    };
    {
      OrderModel model(machine.gpu(), &machine.driver(), 5, static_cast<std::uint32_t>(n), 0,
                       {.calls_in_flight = 4}, source);
      machine.driver().fail_call(n, unknown_error);
      for (int i = 0; i < 8; ++i) {
        guarded([&] { model.random_call(i % 3, i % 3 == 2 ? 150 : 2, false); });
      }
      guarded([&] { model.experts().synchronize(); });
      const bool strikes = machine.driver().fault_struck();
      machine.driver().disarm();
      struck += strikes ? 1 : 0;
      EXPECT_EQ(model.steps().wrong(), "") << "call " << n;
      EXPECT_TRUE(reported || model.steps().missing() == 0) << "call " << n;
      guarded([&] { model.experts().check(); });
      // All slots and calls are still there.
      for (int layer = 0; layer < 3; ++layer) model.call(layer, all_experts(), true);
      model.experts().synchronize();
      EXPECT_EQ(model.steps().wrong(), "") << "after call " << n;
    }
    EXPECT_TRUE(is_clean(machine.driver())) << "call " << n;
  }
  EXPECT_GT(struck, 100U);
}

TEST(ExpertsFaults, EveryFailingCallIsSurvived) { survive_every_failing_call({}); }
TEST(ExpertsFaults, EveryFailingCallIsSurvivedFromADisk) {
  survive_every_failing_call({.host_slots = 3});
}
TEST(ExpertsFaults, EveryFailingCallIsSurvivedCompressed) {
  survive_every_failing_call({.compressed = true});
}

void survive_a_lost_device(Source source) {
  for (std::uint64_t n = 1; n <= 300; n += 1 + n / 8) {
    const Watchdog watchdog("call " + std::to_string(n));
    FakeMachine machine({.seed = n, .max_delay_us = 10});
    bool reported = false;
    const auto guarded = [&](const auto& function) {
      try {
        function();
      } catch (const std::exception&) {
        reported = true;
      }
    };
    {
      OrderModel model(machine.gpu(), &machine.driver(), 5, static_cast<std::uint32_t>(n), 0, {},
                       source);
      if (n % 2 == 0) {
        machine.driver().lose_device_at(n);
      } else {
        machine.driver().fail_work(n);
      }
      for (int i = 0; i < 8; ++i) guarded([&] { model.random_call(i % 3, 2, false); });
      guarded([&] { model.experts().synchronize(); });
      if (machine.driver().fault_struck()) {
        guarded([&] { model.random_call(0, 2, false); });
        EXPECT_TRUE(reported) << "call " << n;
      }
      EXPECT_EQ(model.steps().wrong(), "") << "call " << n;
    }
    EXPECT_TRUE(is_clean_after_loss(machine.driver())) << "call " << n;
  }
}

TEST(ExpertsFaults, ALostDeviceEndsEverything) { survive_a_lost_device({}); }
TEST(ExpertsFaults, ALostDeviceEndsEverythingFromADisk) {
  survive_a_lost_device({.host_slots = 3});
}
TEST(ExpertsFaults, ALostDeviceEndsEverythingCompressed) {
  survive_a_lost_device({.compressed = true});
}

// The call ends with the error, and neither a slot nor a buffer is lost.
TEST(ExpertsFaults, ADecompressionThatIsRefusedEndsTheCall) {
  for (const bool gpu : {false, true}) {
    for (int number = 1; number <= 12; ++number) {
      const Watchdog watchdog("decompression " + std::to_string(number));
      FakeMachine machine({.seed = 1, .max_delay_us = 10});
      {
        OrderModel model(gpu ? machine.gpu() : Device::cpu(), gpu ? &machine.driver() : nullptr, 5,
                         1, 0, {.policy = lru_policy()}, {.compressed = true});
        model.steps().fail_decompress(number);
        model.call(0, all_experts(), false);
        EXPECT_THROW(model.experts().synchronize(), DeviceError);
        EXPECT_GT(model.steps().missing(), 0U);
        for (int round = 0; round < 2; ++round) {
          for (int layer = 0; layer < 3; ++layer) model.call(layer, all_experts(), true);
        }
        model.experts().synchronize();
        EXPECT_EQ(model.steps().wrong(), "");
        EXPECT_EQ(model.experts().statistics().failed_calls, 1U);
      }
      EXPECT_TRUE(is_clean(machine.driver()));
    }
  }
}

// Calls after the file was truncated report it; those after it is whole again are right, and no
// slot of the two caches is lost.
TEST(ExpertsFaults, ATruncatedFileIsReported) {
  const Watchdog watchdog("ATruncatedFileIsReported");
  for (const bool gpu : {false, true}) {
    FakeMachine machine({.seed = 1, .max_delay_us = 10});
    {
      OrderModel model(gpu ? machine.gpu() : Device::cpu(), gpu ? &machine.driver() : nullptr, 4, 1,
                       0, {.policy = lru_policy()}, {.host_slots = 2});
      model.call(0, {1, 2});
      model.experts().synchronize();
      const auto bytes = std::filesystem::file_size(model.file());
      const auto time = std::filesystem::last_write_time(model.file());
      std::filesystem::resize_file(model.file(), 4096 + 512);
      model.call(0, all_experts(), false);
      try {
        model.experts().synchronize();
        FAIL() << "nothing was thrown";
      } catch (const SystemError& error) {
        EXPECT_NE(std::string(error.what()).find("experts"), std::string::npos) << error.what();
      }
      EXPECT_GT(model.steps().missing(), 0U);
      // A file with the size and the time from before, though not with all bytes.
      std::filesystem::resize_file(model.file(), bytes);
      std::filesystem::last_write_time(model.file(), time);
      for (int i = 0; i < 3; ++i) model.call(0, {0, 0});
      model.experts().synchronize();
      for (int layer = 1; layer < 3; ++layer) model.call(layer, all_experts(), true);
      model.experts().synchronize();
      EXPECT_EQ(model.experts().statistics().failed_calls, 1U);
    }
    EXPECT_TRUE(is_clean(machine.driver()));
  }
}

TEST(ExpertsFaults, ACaptureIsRefused) {
  FakeMachine machine;
  {
    OrderModel model(machine.gpu(), &machine.driver(), 5, 1, 0);
    machine.driver().set_capturing(model.stream().native(), true);
    EXPECT_THROW(model.call(0, {1, 2}), Unsupported);
    const MoeOptions call = model.options({1, 2});
    EXPECT_THROW(model.experts().prefetch(0, call.ids, model.stream()), Unsupported);
    machine.driver().set_capturing(model.stream().native(), false);
    model.call(0, {1, 2});
    model.experts().synchronize();
    EXPECT_EQ(model.steps().wrong(), "");
  }
  EXPECT_TRUE(is_clean(machine.driver()));
}

}  // namespace
}  // namespace ps::test
