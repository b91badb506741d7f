// Experts that a real GPU and the CPU compute together: the results of moe() but for rounding.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gpu/expert_calls.h"
#include "gpu/gpu_test.h"
#include "penstock/base/error.h"
#include "penstock/host/cuda.h"
#include "penstock/host/pool.h"
#include "penstock/outofcore/experts.h"

namespace ps::test {
namespace {

constexpr ExpertShape usual{.layers = 3, .experts = 32, .hidden = 256, .width = 128};

struct Share {
  HostExperts host;
  double share = 0;
};

double value_of(const std::uint8_t* at, DType type) {
  if (type == DType::f32) {
    float value = 0;
    std::memcpy(&value, at, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, 2);
  if (type == DType::bf16) {
    const std::uint32_t wide = std::uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &wide, 4);
    return value;
  }
  const int exponent = bits >> 10 & 31;
  if (exponent == 31) return std::nan("");
  const double size = exponent == 0 ? std::ldexp(bits & 1023, -24)
                                    : std::ldexp(1024 + (bits & 1023), exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

testing::AssertionResult are_near(const std::vector<std::uint8_t>& got,
                                  const std::vector<std::uint8_t>& wanted, DType type) {
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < wanted.size(); i += size_of(type)) {
    const double want = value_of(&wanted[i], type);
    const double difference = std::abs(value_of(&got[i], type) - want);
    if (std::isnan(difference)) return testing::AssertionFailure() << "NaN at byte " << i;
    largest = std::max(largest, std::abs(want));
    worst = std::max(worst, difference);
  }
  if (worst <= host_experts_tolerance(type) * largest) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "an error of " << worst << " with results up to " << largest;
}

class ExpertsOnTheHostGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (gpu.kind() != DeviceKind::cuda) GTEST_SKIP() << "needs a GPU";
    stream.emplace(gpu);
    pool.emplace(gpu);
  }

  StreamedExpertsOptions options(const Weights& weights, std::size_t slots,
                                 const Share& share) const {
    return {.store = &weights.store,
            .device = gpu,
            .device_bytes = bytes_for(weights.store.shape(), slots),
            .host_experts = share.host,
            .host_share = share.share,
            .records = 1000};
  }

  // Calls of this many tokens, layer by layer, several times.
  void expect_the_results_of_moe(const ExpertShape& shape, std::size_t slots, const Share& share,
                                 std::uint32_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", slots " + std::to_string(slots));
    std::mt19937 random(seed);
    const Weights weights(gpu, shape, *stream, random);
    StreamedExperts experts(options(weights, slots, share));
    for (const std::int64_t tokens : {1, 2, 8, 64}) {
      for (int round = 0; round < 3; ++round) {
        std::vector<LayerCall> calls;
        std::vector<std::vector<std::uint8_t>> wanted;
        for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
          LayerCall& call = calls.emplace_back(gpu, shape, tokens, 4, 1, *stream, random);
          call.options.pool = &*pool;
          moe(weights.resident(layer, call.options), *stream);
          wanted.push_back(call.out());
          call.poison_out();
        }
        for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
          experts.forward(layer, calls[static_cast<std::size_t>(layer)].options, *stream);
        }
        experts.synchronize();
        for (std::size_t layer = 0; layer < calls.size(); ++layer) {
          EXPECT_TRUE(are_near(calls[layer].out(), wanted[layer], shape.dtype))
              << tokens << " tokens, layer " << layer << ", round " << round;
        }
      }
    }
    const ExpertStatistics counts = experts.statistics();
    EXPECT_EQ(counts.failed_calls, 0U);
    EXPECT_EQ(counts.needed, counts.hits + counts.late + counts.misses + counts.on_host);
    EXPECT_GT(counts.on_host, 0U);
  }

  std::optional<Stream> stream;
  std::optional<Pool> pool;
};

TEST_F(ExpertsOnTheHostGpu, GiveTheResultsOfMoe) {
  std::uint32_t seed = 1;
  for (const std::size_t slots : {least_slots(usual), std::size_t{20}, std::size_t{96}}) {
    for (const Share share : {Share{HostExperts::balanced}, Share{HostExperts::fixed, 0.4},
                              Share{HostExperts::fixed, 1}}) {
      expect_the_results_of_moe(usual, slots, share, seed++);
    }
  }
}

TEST_F(ExpertsOnTheHostGpu, WithEveryLayoutAndType) {
  std::uint32_t seed = 31;
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    for (const bool transposed : {false, true}) {
      ExpertShape shape = usual;
      shape.dtype = type;
      shape.transposed = transposed;
      shape.layout = transposed ? GateUpLayout::interleaved : GateUpLayout::concatenated;
      shape.gate_up_bias = shape.down_bias = transposed;
      expect_the_results_of_moe(shape, 24, {HostExperts::fixed, 0.5}, seed++);
    }
  }
}

// The same bits from caches of other sizes and with other contents.
TEST_F(ExpertsOnTheHostGpu, AFixedShareGivesTheSameBits) {
  std::mt19937 random(3);
  const Weights weights(gpu, usual, *stream, random);
  std::vector<LayerCall> calls;
  for (std::int64_t i = 0; i < 30; ++i) {
    calls.emplace_back(gpu, usual, 1 + i % 5 * 13, 4, 1, *stream, random).options.pool = &*pool;
  }
  std::vector<std::vector<std::uint8_t>> first;
  for (const std::size_t slots : {std::size_t{96}, std::size_t{9}, std::size_t{40}}) {
    StreamedExperts experts(options(weights, slots, {HostExperts::fixed, 0.5}));
    for (int round = 0; round < 3; ++round) {
      for (const LayerCall& call : calls) call.poison_out();
      for (std::size_t i = 0; i < calls.size(); ++i) {
        experts.forward(static_cast<std::int64_t>(i % 3), calls[i].options, *stream);
      }
      experts.synchronize();
      std::vector<std::vector<std::uint8_t>> outs;
      for (const LayerCall& call : calls) outs.push_back(call.out());
      if (first.empty()) first = outs;
      EXPECT_EQ(outs, first) << slots << " slots, round " << round;
    }
  }
}

// Many calls of few tokens from two threads on streams of their own, long calls between them.
TEST_F(ExpertsOnTheHostGpu, ManyCallsOnTwoStreams) {
  std::mt19937 random(7);
  const Weights weights(gpu, usual, *stream, random);
  StreamedExperts experts(options(weights, 24, {HostExperts::balanced}));
  std::vector<LayerCall> calls;
  std::vector<std::vector<std::uint8_t>> wanted;
  for (std::int64_t i = 0; i < 36; ++i) {
    const std::int64_t tokens = i % 9 == 8 ? 300 : 1 + i % 5 * 4;
    LayerCall& call = calls.emplace_back(gpu, usual, tokens, 4, 1, *stream, random);
    call.options.pool = &*pool;
    moe(weights.resident(i % 3, call.options), *stream);
    wanted.push_back(call.out());
  }
  stream->synchronize();
  const auto use = [&](std::size_t first) {
    const CallersStream own;
    const Stream mine = borrow(gpu, own.get());
    for (int round = 0; round < 60; ++round) {
      for (std::size_t i = first; i < calls.size(); i += 2) {
        fill(calls[i].options.out.memory(), poison, mine);
        experts.forward(static_cast<std::int64_t>(i % 3), calls[i].options, mine);
      }
      if (round % 20 == 0) experts.clear();
    }
    mine.synchronize();
  };
  std::thread other([&] { use(1); });
  use(0);
  other.join();
  experts.synchronize();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_TRUE(are_near(calls[i].out(), wanted[i], usual.dtype)) << i;
  }
  EXPECT_GT(experts.statistics().on_host, 0U);
  EXPECT_EQ(experts.statistics().failed_calls, 0U);
}

TEST_F(ExpertsOnTheHostGpu, ClosingEndsCallsThatAreInFlight) {
  std::mt19937 random(9);
  const Weights weights(gpu, usual, *stream, random);
  for (int round = 0; round < 20; ++round) {
    StreamedExperts experts(options(weights, 8, {HostExperts::balanced}));
    LayerCall call(gpu, usual, 8, 4, 0, *stream, random);
    call.options.pool = &*pool;
    std::thread closing([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
      experts.close();
    });
    try {
      for (int i = 0; i < 100; ++i) experts.forward(i % 3, call.options, *stream);
    } catch (const ExpertsClosed&) {
      // As it should be.
    }
    closing.join();
    stream->synchronize();
    EXPECT_THROW(experts.forward(0, call.options, *stream), std::runtime_error);
  }
}

// In a process of its own, because CUDA loads a kernel when it is first launched, and may wait for
// the device to do so. The stream waits for the CPU then.
TEST_F(ExpertsOnTheHostGpu, KernelsNeedNotBeLoaded) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto first_calls = [&] {
    std::mt19937 random(11);
    const Weights weights(gpu, usual, *stream, random);
    StreamedExperts experts(options(weights, 8, {HostExperts::balanced}));
    for (const std::int64_t tokens : {1, 30, 600}) {
      LayerCall call(gpu, usual, tokens, 4, 0, *stream, random);
      call.options.pool = &*pool;
      for (std::int64_t layer = 0; layer < 3; ++layer) {
        experts.forward(layer, call.options, *stream);
      }
      experts.synchronize();
    }
    std::quick_exit(experts.statistics().calls == 9 ? 0 : 1);
  };
  EXPECT_EXIT(first_calls(), testing::ExitedWithCode(0), "");
}

TEST_F(ExpertsOnTheHostGpu, NeedAStoreInMemory) {
  std::mt19937 random(1);
  const Weights weights(gpu, usual, *stream, random);
  StreamedExpertsOptions wrong = options(weights, 8, {HostExperts::balanced});
  wrong.device = Device::cpu();
  EXPECT_THROW(StreamedExperts(std::move(wrong)), InvalidArgument);
}

}  // namespace
}  // namespace ps::test
