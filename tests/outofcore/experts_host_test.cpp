// StreamedExperts whose experts are computed by the CPU, too: results, the choice of experts,
// errors, and calls that end early.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "outofcore/expert_groups.h"
#include "outofcore/expert_steps.h"
#include "outofcore/polling_threads.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/outofcore/experts.h"
#include "support/expect_clean.h"
#include "support/expert_arrays.h"
#include "support/expert_model.h"
#include "support/fake_machine.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

TEST(PollingThreads, DivideLoops) {
  const Watchdog watchdog("DivideLoops");
  for (const std::size_t threads : {1, 2, 5}) {
    detail::PollingThreads pool(threads);
    for (std::size_t i = 0; i < 300; ++i) {
      const std::size_t count = i * 7 % 101, grain = 1 + i % 5;
      std::vector<int> done(count);
      pool.ranges(count, grain, [&](std::size_t begin, std::size_t end) {
        EXPECT_EQ(begin % grain, 0U);
        for (std::size_t at = begin; at < end; ++at) ++done[at];
      });
      EXPECT_EQ(std::accumulate(done.begin(), done.end(), 0), static_cast<int>(count));
      EXPECT_EQ(std::count(done.begin(), done.end(), 1), static_cast<std::ptrdiff_t>(count));
      // Some loops find the threads asleep.
      if (i % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(12));
      if (i % 7 == 0) pool.wake();
    }
  }
}

TEST(PollingThreads, ReportAnException) {
  const Watchdog watchdog("ReportAnException");
  detail::PollingThreads pool(3);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.ranges(40, 1,
                             [](std::size_t begin, std::size_t) {
                               if (begin > 20) throw std::runtime_error("a range");
                             }),
                 std::runtime_error);
    std::atomic<std::size_t> sum = 0;
    pool.ranges(40, 1, [&](std::size_t begin, std::size_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 40U);
  }
}

struct Share {
  HostExperts host;
  double share = 0;
};
const std::vector<Share> shares = {
    {HostExperts::balanced}, {HostExperts::fixed, 0.3}, {HostExperts::fixed, 1}};

// On the CPU both sides compute with the same kernels, so even the bits are those of moe().
TEST(ExpertsOnTheHost, GiveTheResultsOfMoe) {
  std::uint64_t on_host = 0;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const ExpertShape shape = random_shape(seed, random);
    const ExpertStore store(Device::cpu(), shape);
    randomise(store, random);
    const std::size_t least = detail::least_expert_slots(static_cast<std::size_t>(shape.experts));
    const std::size_t slots = least + random() % static_cast<std::size_t>(3 * shape.experts);
    const Share share = shares[seed % shares.size()];
    StreamedExperts experts({.store = &store,
                             .device = Device::cpu(),
                             .device_bytes = bytes_for(shape, slots),
                             .prefetch = ExpertPrefetch::previous,
                             .host_experts = share.host,
                             .host_share = share.share,
                             .host_threads = 3},
                            {.copy_on_cpu = true});
    const Stream stream(Device::cpu());
    for (int call = 0; call < 12; ++call) {
      Arrays arrays = random_arrays(store, call, random);
      const auto wanted = arrays.wanted(stream);
      experts.forward(call % shape.layers, arrays.call(), stream);
      experts.synchronize();
      EXPECT_EQ(arrays.take_out(), wanted) << "call " << call;
    }
    const ExpertStatistics counts = experts.statistics();
    EXPECT_EQ(counts.failed_calls, 0U);
    EXPECT_EQ(counts.needed, counts.hits + counts.late + counts.misses + counts.on_host);
    on_host += counts.on_host;
  }
  EXPECT_GT(on_host, 100U);
}

TEST(ExpertsOnTheHost, WithEveryActivation) {
  const ExpertShape shape{.layers = 1,
                          .experts = 6,
                          .hidden = 40,
                          .width = 24,
                          .layout = GateUpLayout::interleaved,
                          .transposed = true,
                          .gate_up_bias = true,
                          .down_bias = true};
  const ExpertStore store(Device::cpu(), shape);
  std::mt19937 random(1);
  randomise(store, random);
  StreamedExperts experts({.store = &store,
                           .device = Device::cpu(),
                           .device_bytes = bytes_for(shape, 3),
                           .host_experts = HostExperts::fixed,
                           .host_share = 0.5,
                           .host_threads = 2},
                          {.copy_on_cpu = true});
  const Stream stream(Device::cpu());
  for (const MoeActivation activation :
       {MoeActivation::swiglu, MoeActivation::geglu, MoeActivation::geglu_tanh,
        MoeActivation::clamped_swiglu}) {
    Arrays arrays(store, 0, 9, 3, 16, random);
    arrays.activate(activation);
    const auto wanted = arrays.wanted(stream);
    experts.forward(0, arrays.call(), stream);
    experts.synchronize();
    EXPECT_EQ(arrays.take_out(), wanted);
  }
  EXPECT_GT(experts.statistics().on_host, 8U);
}

// The choice of experts depends on all tokens of a call, so such calls make none.
TEST(ExpertsOnTheHost, LeaveOutBatchInvariantCalls) {
  const ExpertShape shape{.layers = 1, .experts = 6, .hidden = 16, .width = 8};
  const ExpertStore store(Device::cpu(), shape);
  std::mt19937 random(1);
  randomise(store, random);
  StreamedExperts experts({.store = &store,
                           .device = Device::cpu(),
                           .device_bytes = bytes_for(shape, 3),
                           .host_experts = HostExperts::fixed,
                           .host_share = 1,
                           .host_threads = 1},
                          {.copy_on_cpu = true});
  const Stream stream(Device::cpu());
  const Arrays arrays(store, 0, 3, 2, 0, random);
  MoeOptions call = arrays.call();
  for (const bool batch_invariant : {true, false}) {
    call.batch_invariant = batch_invariant;
    experts.forward(0, call, stream);
    experts.synchronize();
    EXPECT_EQ(experts.statistics().on_host == 0, batch_invariant);
  }
}

TEST(ExpertsOnTheHost, ServeSeveralThreads) {
  const Watchdog watchdog("ServeSeveralThreads");
  constexpr ExpertShape shape{.layers = 3, .experts = 8, .hidden = 16, .width = 8};
  const ExpertStore store(Device::cpu(), shape);
  std::mt19937 numbers(1);
  randomise(store, numbers);
  StreamedExperts experts({.store = &store,
                           .device = Device::cpu(),
                           .device_bytes = bytes_for(shape, 5),
                           .host_experts = HostExperts::balanced,
                           .host_threads = 2},
                          {.copy_on_cpu = true});
  std::vector<std::thread> threads;
  for (unsigned number = 1; number <= 6; ++number) {
    threads.emplace_back([&, number] { expect_the_bits_of_moe(experts, store, 40, number); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(experts.statistics().calls, 240U);
  EXPECT_GT(experts.statistics().on_host, 0U);
}

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

TEST(ExpertsOnTheHost, HaveAsManyThreadsAsTheOptionSays) {
  constexpr ExpertShape shape{.layers = 1, .experts = 8, .hidden = 16, .width = 8};
  const ExpertStore store(Device::cpu(), shape);
  static_cast<void>(store.block(0, 7));  // all of its memory is there
  const auto threads_with = [&](std::size_t threads) {
    const std::ptrdiff_t before = threads_of_this_process();
    const StreamedExperts experts({.store = &store,
                                   .device = Device::cpu(),
                                   .device_bytes = bytes_for(shape, 5),
                                   .host_experts = HostExperts::fixed,
                                   .host_share = 0.5,
                                   .host_threads = threads},
                                  {.copy_on_cpu = true});
    return threads_of_this_process() - before;
  };
  threads_with(1);  // threads that stay
  EXPECT_EQ(threads_with(5), threads_with(1) + 4);
}

// A long call on one stream, which waits, does not keep short calls on another one waiting.
TEST(ExpertsOnTheHost, DoNotWaitForOtherStreams) {
  const Watchdog watchdog("DoNotWaitForOtherStreams");
  constexpr ExpertShape shape{.layers = 1, .experts = 8, .hidden = 16, .width = 8};
  const ExpertStore store(Device::cpu(), shape);
  std::mt19937 random(1);
  randomise(store, random);
  StreamedExperts experts({.store = &store,
                           .device = Device::cpu(),
                           .device_bytes = bytes_for(shape, 8),
                           .host_experts = HostExperts::fixed,
                           .host_share = 0.5,
                           .host_threads = 2},
                          {.copy_on_cpu = true});
  const Stream stopped(Device::cpu()), stream(Device::cpu());
  std::atomic<bool> go = false;
  stopped.call([&] {
    while (!go) std::this_thread::yield();
  });
  Arrays large(store, 0, 100, 2, 0, random), few(store, 0, 2, 2, 0, random);
  const auto wanted = few.wanted(stream), wanted_of_large = large.wanted(stream);
  experts.forward(0, large.call(), stopped);
  for (int i = 0; i < 20; ++i) {
    experts.forward(0, few.call(), stream);
    stream.synchronize();
    EXPECT_EQ(few.take_out(), wanted);
  }
  go = true;
  experts.synchronize();
  EXPECT_EQ(large.take_out(), wanted_of_large);
}

struct Machine {
  const char* name;
  bool gpu;
};

class ExpertsOnTheHostOrder : public testing::TestWithParam<Machine> {
 protected:
  void with_model(std::uint32_t seed, std::size_t slots, StreamedExpertsOptions options,
                  const std::function<void(OrderModel&)>& use) {
    if (!GetParam().gpu) {
      OrderModel model(Device::cpu(), nullptr, slots, seed, 50, std::move(options));
      return use(model);
    }
    FakeMachine machine({.stream_wait_value = seed % 4 != 3, .seed = seed, .max_delay_us = 40});
    {
      OrderModel model(machine.gpu(), &machine.driver(), slots, seed, 0, std::move(options));
      use(model);
    }
    EXPECT_TRUE(is_clean(machine.driver()));
  }
};

INSTANTIATE_TEST_SUITE_P(On, ExpertsOnTheHostOrder,
                         testing::Values(Machine{"TheCpu", false}, Machine{"AFakeGpu", true}),
                         [](const auto& on) { return on.param.name; });

TEST_P(ExpertsOnTheHostOrder, EveryExpertIsComputedOnce) {
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Share share = shares[seed % shares.size()];
    with_model(seed, seed % 3 == 0 ? 2 : 2 + random() % 35,
               {.policy = policy_number(seed),
                .prefetch = seed % 2 == 0 ? ExpertPrefetch::previous : ExpertPrefetch::none,
                .host_experts = share.host,
                .host_share = share.share,
                .calls_in_flight = 1 + random() % 8},
               [&](OrderModel& model) {
                 run_randomly(model, 60);
                 model.experts().synchronize();
                 EXPECT_EQ(model.steps().wrong(), "") << "with seed " << seed;
                 EXPECT_EQ(model.steps().calls(), 60U);
                 const ExpertStatistics counts = model.experts().statistics();
                 EXPECT_EQ(counts.calls, 60U);
                 EXPECT_EQ(counts.needed,
                           counts.hits + counts.late + counts.misses + counts.on_host);
                 EXPECT_GT(counts.on_host, 0U);
                 EXPECT_EQ(counts.failed_calls, 0U);
               });
  }
}

// Of 5 experts, round(0.5 * 5) = 3, whatever is on the device.
TEST_P(ExpertsOnTheHostOrder, AFixedShareDoesNotDependOnTheCache) {
  for (const std::size_t slots : {2, 36}) {
    with_model(1, slots, {.host_experts = HostExperts::fixed, .host_share = 0.5, .records = 100},
               [&](OrderModel& model) {
                 for (int round = 0; round < 5; ++round) {
                   // Two rows: 0 and 1; one row: 2, 3 and 9, which the host computes.
                   model.call(0, {0, 1, 0, 1, 2, 3, 9, 2});
                   model.call(0, {0, 1, 0, 1, 3, 2, 9, 9});
                   model.call(1, {4, 4});
                 }
                 model.experts().synchronize();
                 EXPECT_EQ(model.steps().wrong(), "");
                 for (const ExpertCallRecord& record : model.experts().records()) {
                   EXPECT_EQ(record.on_host, record.layer == 0 ? 3U : 1U);
                   EXPECT_EQ(record.needed, record.layer == 0 ? 5U : 1U);
                 }
               });
  }
}

// The least used experts, so that others can be on the device: an expert is copied at the fourth
// use at the latest.
TEST_P(ExpertsOnTheHostOrder, AnExpertThatIsOftenNeededIsCopied) {
  with_model(2, 36, {.host_experts = HostExperts::balanced, .records = 100},
             [&](OrderModel& model) {
               for (int round = 0; round < 6; ++round) {
                 model.call(0, {1, 2, 3, 4});
                 model.experts().synchronize();
               }
               EXPECT_EQ(model.steps().wrong(), "");
               const auto records = model.experts().records();
               EXPECT_EQ(records.back().hits, 4U);
               EXPECT_EQ(model.experts().statistics().misses, 4U);
             });
}

TEST_P(ExpertsOnTheHostOrder, LongCallsCopyEverything) {
  with_model(3, 36, {.host_experts = HostExperts::fixed, .host_share = 1}, [&](OrderModel& model) {
    model.random_call(0, 65);
    model.random_call(1, 300);
    model.experts().synchronize();
    EXPECT_EQ(model.experts().statistics().on_host, 0U);
    model.random_call(1, 64);
    model.experts().synchronize();
    EXPECT_GT(model.experts().statistics().on_host, 0U);
    EXPECT_EQ(model.steps().wrong(), "");
  });
}

TEST_P(ExpertsOnTheHostOrder, ClosingEndsCallsThatAreInFlight) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    const Share share = shares[seed % shares.size()];
    with_model(seed, 2 + seed, {.host_experts = share.host, .host_share = share.share},
               [&](OrderModel& model) {
                 std::thread closing([&] { model.experts().close(); });
                 for (int i = 0; i < 20; ++i) {
                   try {
                     model.random_call(i % 3, 2, false);
                   } catch (const ExpertsClosed&) {
                     break;
                   }
                 }
                 closing.join();
                 model.stream().synchronize();
                 EXPECT_EQ(model.steps().wrong(), "") << "what was computed is right";
                 EXPECT_THROW(model.call(0, {1, 2}), ExpertsClosed);
               });
  }
}

TEST_P(ExpertsOnTheHostOrder, ObjectsGoWhileCallsAreInFlight) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    const Share share = shares[seed % shares.size()];
    with_model(seed, 2 + seed, {.host_experts = share.host, .host_share = share.share},
               [&](OrderModel& model) {
                 run_randomly(model, 15);
                 model.drop();
                 EXPECT_EQ(model.steps().calls(), 15U);
                 EXPECT_EQ(model.steps().wrong(), "");
               });
  }
}

TEST_P(ExpertsOnTheHostOrder, AFailureOfTheHostEndsTheCall) {
  const Watchdog watchdog("AFailureOfTheHostEndsTheCall");
  with_model(5, 5, {.host_experts = HostExperts::fixed, .host_share = 0.5}, [&](OrderModel& model) {
    model.steps().fail_on_host(2);
    model.call(0, {1, 2});
    model.call(1, {1, 2}, false);
    EXPECT_THROW(model.experts().synchronize(), OutOfMemory);
    EXPECT_EQ(model.steps().missing(), 1U);
    for (int i = 0; i < 10; ++i) model.random_call(i % 3, 2);
    model.experts().synchronize();
    EXPECT_EQ(model.steps().wrong(), "");
    EXPECT_EQ(model.experts().statistics().failed_calls, 1U);
  });
}

TEST(ExpertsOnTheHost, HaveATolerance) {
  EXPECT_EQ(host_experts_tolerance(DType::bf16), 1.0 / 64);
  EXPECT_EQ(host_experts_tolerance(DType::f16), 1.0 / 512);
  EXPECT_EQ(host_experts_tolerance(DType::f32), 1.0 / 131072);
  EXPECT_EQ(named([] { host_experts_tolerance(DType::i32); }), "dtype");
}

TEST(ExpertsOnTheHostErrors, OfOptions) {
  const ExpertShape shape{.layers = 2, .experts = 4, .hidden = 16, .width = 8};
  const ExpertStore store(Device::cpu(), shape);
  CompressedExpertStore compressed(Device::cpu(), shape);
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (std::int64_t e = 0; e < 4; ++e) compressed.set(layer, e, store.block(layer, e));
  }
  const auto made = [&](HostExperts host, double share, bool copies = true, bool plain = true,
                        std::size_t threads = 0) {
    return named([&] {
      StreamedExperts({.store = plain ? &store : nullptr,
                       .compressed = plain ? nullptr : &compressed,
                       .device = Device::cpu(),
                       .device_bytes = 1 * MiB,
                       .host_experts = host,
                       .host_share = share,
                       .host_threads = threads},
                      {.copy_on_cpu = copies});
    });
  };
  EXPECT_EQ(made(HostExperts::none, 0), "");
  EXPECT_EQ(made(HostExperts::balanced, 0), "");
  EXPECT_EQ(made(HostExperts::fixed, 1), "");
  EXPECT_EQ(made(HostExperts::fixed, 0), "host_share");
  EXPECT_EQ(made(HostExperts::fixed, -0.5), "host_share");
  EXPECT_EQ(made(HostExperts::fixed, 1.01), "host_share");
  EXPECT_EQ(made(HostExperts::fixed, std::numeric_limits<double>::quiet_NaN()), "host_share");
  EXPECT_EQ(made(HostExperts::balanced, 0.5), "host_share");
  EXPECT_EQ(made(HostExperts::none, 0.5), "host_share");
  EXPECT_EQ(made(HostExperts::balanced, 0, false), "host_experts");
  EXPECT_EQ(made(HostExperts::none, 0, false), "");
  EXPECT_EQ(made(HostExperts::balanced, 0, true, false), "host_experts");
  EXPECT_EQ(made(static_cast<HostExperts>(7), 0), "host_experts");
  EXPECT_EQ(made(HostExperts::fixed, 1, true, true, 3), "");
  EXPECT_EQ(made(HostExperts::fixed, 1, true, true, 257), "host_threads");
  EXPECT_EQ(made(HostExperts::none, 0, true, true, 1), "host_threads");
}

}  // namespace
}  // namespace ps::test
