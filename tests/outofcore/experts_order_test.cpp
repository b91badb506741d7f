// What StreamedExperts copies, when, and into which slots: with steps that compute nothing, on the
// CPU and on a fake GPU, from memory, from a disk, and from compressed experts.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "host/backend.h"
#include "host/cpu/backend.h"
#include "host/flag.h"
#include "outofcore/expert_groups.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/outofcore/experts.h"
#include "support/expect_clean.h"
#include "support/expert_arrays.h"
#include "support/expert_model.h"
#include "support/failing_heap.h"
#include "support/failing_reads.h"
#include "support/fake_machine.h"
#include "support/sanitized.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

struct Place {
  const char* name;
  bool gpu = false, disk = false, compressed = false;
};

class ExpertsOrder : public testing::TestWithParam<Place> {
 protected:
  void with_model(std::uint32_t seed, std::size_t slots, StreamedExpertsOptions options,
                  const std::function<void(OrderModel&)>& use, std::int64_t hint_wait_ns = 1000) {
    const Source source{.host_slots = GetParam().disk ? 2 + seed % 5 : 0,
                        .compressed = GetParam().compressed};
    if (!GetParam().gpu) {
      OrderModel model(Device::cpu(), nullptr, slots, seed, 50, std::move(options), source,
                       hint_wait_ns);
      return use(model);
    }
    FakeMachine machine({.stream_wait_value = seed % 4 != 3, .seed = seed, .max_delay_us = 40});
    {
      OrderModel model(machine.gpu(), &machine.driver(), slots, seed, 0, std::move(options), source,
                       hint_wait_ns);
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

// Another thread's hint on the stream of a call: its ids are not known before the call is answered,
// and it is posted first.
TEST_P(ExpertsOrder, HintsBehindACallDoNotHoldItUp) {
  const Watchdog watchdog("HintsBehindACallDoNotHoldItUp");
  with_model(9, 12, {}, [&](OrderModel& model) {
    const MoeOptions ids = model.options({4, 6});
    model.steps().before_combine(
        [&] { std::thread([&] { model.experts().prefetch(1, ids.ids, model.stream()); }).join(); });
    model.call(0, {1, 2});
    while (model.experts().statistics().prefetched < 2) std::this_thread::yield();
    model.call(1, {4, 6});
    model.experts().synchronize();
    EXPECT_EQ(model.experts().statistics().misses, 2U);
    EXPECT_EQ(model.steps().wrong(), "");
  });
}

// A hint for the next layer comes before the call of this one, which must not wait for its copies.
TEST_P(ExpertsOrder, HintsAreCopiedAfterTheCallThatFollows) {
  const Watchdog watchdog("HintsAreCopiedAfterTheCallThatFollows");
  constexpr std::int64_t an_hour = 3'600'000'000'000;
  with_model(
      11, 12, {},
      [&](OrderModel& model) {
        for (const int layer : {0, 1}) {
          const MoeOptions ids = model.options({4, 6});
          model.experts().prefetch(1, ids.ids, model.stream());
          model.experts().synchronize();  // the ids are known
          EXPECT_EQ(model.experts().statistics().prefetched, layer * 2U);
          model.call(layer, {1, 2});
          while (model.experts().statistics().prefetched < 2) std::this_thread::yield();
        }
        model.call(2, {1, 2});
        model.call(1, {4, 6});
        model.experts().synchronize();
        const ExpertStatistics counts = model.experts().statistics();
        EXPECT_EQ(counts.misses, 6U);
        EXPECT_EQ(counts.hits + counts.late, 2U);
        EXPECT_EQ(counts.prefetched, 2U);
        EXPECT_EQ(model.steps().wrong(), "");
      },
      an_hour);
}

// The ids of a hint may take as long as they like: calls on other streams do not wait for them.
TEST_P(ExpertsOrder, HintsOfASlowStreamDoNotHoldUpCalls) {
  const Watchdog watchdog("HintsOfASlowStreamDoNotHoldUpCalls");
  with_model(10, 12, {}, [&](OrderModel& model) {
    const Stream slow(model.stream().device());
    const PinnedBuffer memory(slow.device(), 64);
    auto* const flag = memory.view().as<std::uint32_t>();
    *flag = 0;
    const MoeOptions ids = model.options({4, 6});
    slow.impl().wait_value(flag, 1);
    model.experts().prefetch(1, ids.ids, slow);
    for (int i = 0; i < 3; ++i) model.call(i, {1, 2});
    model.stream().synchronize();
    model.experts().clear();  // forgets the hint
    detail::set_flag(flag, 1);
    model.experts().synchronize();
    EXPECT_EQ(model.experts().statistics().misses, 6U);
    EXPECT_EQ(model.experts().statistics().prefetched, 0U);
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
  const Watchdog watchdog("PassesOverAPromptGoAhead");
  with_model(6, 18, {.policy = lru_policy()}, [&](OrderModel& model) {
    for (int pass = 0; pass < 3; ++pass) {
      for (int layer = 0; layer < 3; ++layer) {
        model.call(layer, all_experts(32));
        // Between two calls there may be no time for it.
        while (model.experts().statistics().prefetched == 0) std::this_thread::yield();
      }
      model.experts().synchronize();
    }
    EXPECT_EQ(model.steps().wrong(), "");
    const ExpertStatistics counts = model.experts().statistics();
    EXPECT_EQ(counts.needed, 9U * 12U);
    EXPECT_GT(counts.hits + counts.late, 0U);
    EXPECT_GT(counts.prefetched, 0U);
  });
}

// Experts without tokens are not waited for, also if the call did not wait for its routing.
TEST_P(ExpertsOrder, ExpertsWithoutTokensMayBeLeftOut) {
  with_model(7, 12, {}, [&](OrderModel& model) {
    model.steps().route_at_once();
    std::vector<std::int32_t> chosen(600, 3);
    model.call(0, chosen);
    model.experts().synchronize();
    EXPECT_EQ(model.steps().wrong(), "");
    EXPECT_EQ(model.steps().missing(), 0U);
    EXPECT_EQ(model.experts().statistics().misses, 1U);
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

TEST_P(ExpertsOrder, AnyThreadMayClose) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    with_model(seed, 2 + seed, {.calls_in_flight = 3}, [&](OrderModel& model) {
      std::thread closing([&, seed] {
        while (model.steps().calls() < seed % 5) std::this_thread::yield();
        model.experts().close();
      });
      // Until then calls are made: they may be about to begin, wait for their turn, or be answered.
      try {
        for (int i = 0;; ++i) model.random_call(i % 3, i % 4 == 3 ? 150 : 2, false);
      } catch (const ExpertsClosed&) {
        // By forward(), or as the error of a call that was in flight.
      }
      closing.join();
      model.stream().synchronize();
      EXPECT_EQ(model.steps().wrong(), "") << "what was computed is right";
      EXPECT_THROW(
          {
            model.experts().check();
            model.call(0, {1, 2});
          },
          ExpertsClosed);
    });
  }
}

// Bytes of the process that are in memory.
std::size_t resident_bytes() {
  std::size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// 10^5 calls, which compute experts, take no more memory than 10^3. Sanitized builds make fewer.
TEST(ExpertsEndurance, DecodeStepsTakeNoMemory) {
  const Watchdog watchdog("DecodeStepsTakeNoMemory", std::chrono::seconds(200));
  constexpr int steps = sanitized ? 2000 : 100'000;
  const ExpertStore store(Device::cpu(), small_experts);
  std::mt19937 random(1);
  randomise(store, random);
  StreamedExperts experts({.store = &store,
                           .device = Device::cpu(),
                           .device_bytes = bytes_for(small_experts, 14),
                           .policy = frequency_policy({.remembered = 36})},
                          {.copy_on_cpu = true});
  const Stream stream(Device::cpu());
  std::deque<Arrays> tokens;
  std::vector<std::vector<std::uint8_t>> wanted;
  for (int i = 0; i < 24; ++i) {
    tokens.emplace_back(store, i % 3, 1, 2, 0, random);
    wanted.push_back(tokens.back().wanted(stream));
  }
  const auto some = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const std::size_t which = random() % tokens.size();
      experts.forward(static_cast<std::int64_t>(which % 3), tokens[which].call(), stream);
      if (i % 1000 != 999) continue;
      stream.synchronize();
      EXPECT_EQ(tokens[which].take_out(), wanted[which]) << "call " << i;
    }
    experts.synchronize();
  };
  some(1000);
  const std::uint64_t allocations = Device::cpu().allocations();
  const std::size_t heap = mallinfo2().uordblks, resident = resident_bytes();
  some(steps);
  EXPECT_EQ(Device::cpu().allocations(), allocations);
  EXPECT_LE(mallinfo2().uordblks, heap + 256 * 1024);
  if (!sanitized) {
    EXPECT_LE(resident_bytes(), resident + 2 * MiB);
  }
  EXPECT_EQ(experts.statistics().calls, 1000U + steps);
  EXPECT_GT(experts.statistics().evicted, steps / 20U);
}

// Fails call after call of the driver table while calls of the model are in flight. Nothing hangs,
// nothing leaks, no expert is computed from wrong bytes, and the object works afterwards.
void survive_every_failing_call(Source source, HostExperts host = HostExperts::none) {
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
                       {.pinned = {{1, 7}},
                        .prefetch = ExpertPrefetch::previous,
                        .host_experts = host,
                        .host_share = host == HostExperts::fixed ? 0.5 : 0,
                        .calls_in_flight = 4},
                       source);
      machine.driver().fail_call(n, unknown_error);
      for (int i = 0; i < 8; ++i) {
        guarded([&] {
          const MoeOptions likely = model.options({4, 6});
          model.experts().prefetch((i + 1) % 3, likely.ids, model.stream());
        });
        guarded([&] { model.random_call(i % 3, i % 3 == 2 ? 150 : 2, false); });
        if (n % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      guarded([&] { model.experts().synchronize(); });
      const bool strikes = machine.driver().fault_struck();
      machine.driver().disarm();
      struck += strikes ? 1 : 0;
      EXPECT_EQ(model.steps().wrong(), "") << "call " << n;
      EXPECT_TRUE(reported || model.steps().missing() == 0) << "call " << n;
      // What a prefetch met last is reported by now.
      for (int i = 0; i < 2; ++i) {
        guarded([&] {
          model.call(0, {1, 2}, false);
          model.experts().synchronize();
        });
      }
      // All slots and calls are still there.
      for (int layer = 0; layer < 3; ++layer) model.call(layer, all_experts(), true);
      model.experts().synchronize();
      EXPECT_EQ(model.steps().wrong(), "") << "after call " << n;
    }
    EXPECT_TRUE(is_clean(machine.driver())) << "call " << n;
  }
  EXPECT_GT(struck, 100U);
}

// Memory of a store is locked piece by piece. Experts that are there are copied meanwhile.
TEST(ExpertsStore, CallsDoNotWaitForMemoryOfLaterLayers) {
  const Watchdog watchdog("CallsDoNotWaitForMemoryOfLaterLayers");
  constexpr ExpertShape shape{.layers = 2, .experts = 2, .hidden = 2048, .width = 2816};
  ASSERT_GT(ExpertStore::bytes_needed(shape), 128 * MiB) << "two pieces";
  std::promise<void> go_on;
  std::atomic<int> pieces{0};
  FakeMachine machine({.registering = [&](std::size_t) {
    if (++pieces == 2) go_on.get_future().wait();
  }});
  {
    const ExpertStore store(machine.gpu(), shape);
    const auto steps = std::make_shared<RecordingSteps>(store, &machine.driver(), 1, 0);
    StreamedExperts experts({.store = &store,
                             .device = machine.gpu(),
                             .device_bytes = StreamedExperts::least_bytes(shape)},
                            {.steps = steps});
    const Stream stream(machine.gpu());
    Pool pool(machine.gpu());
    const DeviceBuffer memory(machine.gpu(), 32 * 1024);
    std::iota(memory.view().as<std::int32_t>(), memory.view().as<std::int32_t>() + 2, 0);
    const auto view = [&](std::size_t at, DType type, std::int64_t columns) {
      return TensorView(memory.view().data + at, type, {1, columns}, machine.gpu().place());
    };
    const MoeOptions call{.x = view(4096, DType::bf16, shape.hidden),
                          .ids = view(0, DType::i32, 2),
                          .weights = view(1024, DType::f32, 2),
                          .out = view(16384, DType::bf16, shape.hidden),
                          .pool = &pool};
    steps->expect(0);
    experts.forward(0, call, stream);
    experts.synchronize();
    EXPECT_EQ(steps->calls(), 1U);
    EXPECT_LE(pieces, 2) << "the second piece is not there yet";
    go_on.set_value();
    steps->expect(1);
    experts.forward(1, call, stream);
    experts.synchronize();
    EXPECT_EQ(experts.statistics().misses, 4U);
    EXPECT_EQ(steps->wrong(), "");
  }
  EXPECT_TRUE(is_clean(machine.driver()));
}

TEST(ExpertsFaults, EveryFailingCallIsSurvived) { survive_every_failing_call({}); }
TEST(ExpertsFaults, EveryFailingCallIsSurvivedFromADisk) {
  survive_every_failing_call({.host_slots = 3});
}
TEST(ExpertsFaults, EveryFailingCallIsSurvivedCompressed) {
  survive_every_failing_call({.compressed = true});
}

TEST(ExpertsFaults, EveryFailingCallIsSurvivedWithExpertsOnTheHost) {
  survive_every_failing_call({}, HostExperts::fixed);
}

void survive_a_lost_device(Source source, HostExperts host = HostExperts::none) {
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
      OrderModel model(machine.gpu(), &machine.driver(), 5, static_cast<std::uint32_t>(n), 0,
                       {.host_experts = host}, source);
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

// The choice of experts depends on time, and with it which call fails.
TEST(ExpertsFaults, EveryFailingCallIsSurvivedWithABalancedHost) {
  survive_every_failing_call({}, HostExperts::balanced);
}

// Makes a model and uses it while memory is refused. What throws leaves nothing behind; objects
// that exist work when there is memory again.
void use_without_memory(const Device& device, FakeDriver* driver, Source source, HostExperts host,
                        const std::function<void()>& give_memory, const std::string& here) {
  bool reported = false;
  const auto guarded = [&](const auto& function) {
    try {
      function();
    } catch (const OutOfMemory&) {
      reported = true;
    }
  };
  std::optional<OrderModel> model;
  guarded([&] {
    model.emplace(device, driver, 5, 1, 0,
                  StreamedExpertsOptions{.host_experts = host,
                                         .host_share = host == HostExperts::fixed ? 0.5 : 0,
                                         .calls_in_flight = 2},
                  source);
  });
  if (!model) return;
  for (int i = 0; i < 4; ++i) {
    guarded([&] { model->random_call(i % 3, i % 3 == 2 ? 150 : 2, false); });
  }
  guarded([&] { model->experts().synchronize(); });
  give_memory();
  EXPECT_EQ(model->steps().wrong(), "") << here;
  EXPECT_TRUE(reported || model->steps().missing() == 0) << here;
  guarded([&] { model->experts().check(); });
  for (int layer = 0; layer < 3; ++layer) model->call(layer, all_experts(), true);
  model->experts().synchronize();
  EXPECT_EQ(model->steps().wrong(), "") << here;
}

const std::vector<std::pair<Source, HostExperts>> ways_to_hold_experts{
    {{}, HostExperts::none},
    {{}, HostExperts::fixed},
    {{.host_slots = 3}, HostExperts::none},
    {{.compressed = true}, HostExperts::none}};

TEST(ExpertsFaults, AnyAllocationOfADeviceFails) {
  Watchdog watchdog("AnyAllocationOfADeviceFails");
  for (std::size_t way = 0; way < ways_to_hold_experts.size(); ++way) {
    const auto& [source, host] = ways_to_hold_experts[way];
    bool struck = true;
    std::uint64_t n = 1;
    for (; struck; ++n) {
      const std::string here = "way " + std::to_string(way) + ", allocation " + std::to_string(n);
      watchdog.step(here);
      FakeMachine machine({.seed = n, .max_delay_us = 10});
      FakeDriver& driver = machine.driver();
      driver.fail_call(n, cuda::memory_allocation, allocating_calls);
      use_without_memory(machine.gpu(), &driver, source, host, [&] { driver.disarm(); }, here);
      struck = driver.fault_struck();
      ASSERT_TRUE(is_clean(driver)) << here;
    }
    EXPECT_GT(n, 10U) << "way " << way;
  }
}

TEST(ExpertsFaults, AnyAllocationOfTheCpuFails) {
  Watchdog watchdog("AnyAllocationOfTheCpuFails");
  for (std::size_t way = 0; way < ways_to_hold_experts.size(); ++way) {
    const auto& [source, host] = ways_to_hold_experts[way];
    bool struck = true;
    std::uint64_t n = 1;
    for (; struck; ++n) {
      const std::string here = "way " + std::to_string(way) + ", allocation " + std::to_string(n);
      watchdog.step(here);
      const auto heap = std::make_shared<FailingHeap>();
      {
        const Device device(std::make_shared<cpu::Backend>(heap));
        heap->fail_at(n);
        use_without_memory(device, nullptr, source, host, [&] { heap->fail_at(0); }, here);
      }
      struck = heap->struck();
      ASSERT_EQ(heap->outstanding(), 0) << here;
    }
    EXPECT_GT(n, 3U) << "way " << way;
  }
}

TEST(ExpertsFaults, ALostDeviceEndsEverything) { survive_a_lost_device({}); }
TEST(ExpertsFaults, ALostDeviceEndsEverythingFromADisk) {
  survive_a_lost_device({.host_slots = 3});
}
TEST(ExpertsFaults, ALostDeviceEndsEverythingWithExpertsOnTheHost) {
  survive_a_lost_device({}, HostExperts::balanced);
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

// The same if the disk fails in the middle of an expert. What was prefetched and cannot be read is
// silent until a call needs it.
TEST(ExpertsFaults, ABadBlockIsReported) {
  const Watchdog watchdog("ABadBlockIsReported");
  for (const bool gpu : {false, true}) {
    FakeMachine machine({.seed = 1, .max_delay_us = 10});
    {
      OrderModel model(gpu ? machine.gpu() : Device::cpu(), gpu ? &machine.driver() : nullptr, 6, 1,
                       0, {.policy = lru_policy()}, {.host_slots = 3});
      const std::uint64_t at = 4096 + 7 * ExpertStore::block_bytes(small_experts);
      {
        const FailingReads failing(model.file().string(), at);
        const std::vector<std::int32_t> likely{7, 8};
        model.experts().prefetch(0, likely);
        while (model.experts().statistics().prefetched == 0) std::this_thread::yield();
        model.call(0, {1, 8});
        model.experts().synchronize();
        EXPECT_EQ(failing.failures(), 1);
        model.call(0, all_experts(), false);
        try {
          model.experts().synchronize();
          ADD_FAILURE() << "nothing was thrown";
        } catch (const SystemError& error) {
          EXPECT_NE(std::string(error.what()).find("experts at byte " + std::to_string(at)),
                    std::string::npos)
              << error.what();
        }
        EXPECT_GE(failing.failures(), 2) << "the call reads again";
      }
      for (int layer = 0; layer < 3; ++layer) model.call(layer, all_experts());
      model.experts().synchronize();
      EXPECT_EQ(model.steps().wrong(), "");
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
