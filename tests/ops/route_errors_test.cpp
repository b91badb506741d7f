// Arguments that route() refuses.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/ops/route.h"
#include "support/fake_machine.h"

namespace ps::test {
namespace {

// A call that is right. Tests spoil it.
class RouteErrors : public testing::Test {
 protected:
  static constexpr std::int64_t T = 3, E = 12, K = 4;

  RouteErrors() {
    options.logits = view(logits.data(), DType::f32, {T, E});
    options.bias = view(bias.data(), DType::f32, {E});
    options.ids = view(ids.data(), DType::i32, {T, K});
    options.weights = view(weights.data(), DType::f32, {T, K});
    options.scoring = RouteScoring::sigmoid;
  }

  static TensorView view(void* data, DType type, std::initializer_list<std::int64_t> shape) {
    return {data, type, shape, Device::cpu().place()};
  }
  static TensorView strided(void* data, DType type, std::vector<std::int64_t> shape,
                            std::vector<std::int64_t> strides) {
    return {data, type, shape, strides, Device::cpu().place()};
  }

  // "argument: expected ..., got ..." of the error, or "".
  std::string message(const std::function<void(RouteOptions&)>& spoil) const {
    RouteOptions bad = options;
    spoil(bad);
    const Stream stream(Device::cpu());
    try {
      route(bad, stream);
      stream.synchronize();
    } catch (const InvalidArgument& error) {
      return error.argument() + ": expected " + error.expected() + ", got " + error.given();
    }
    return "";
  }

  alignas(64) std::array<float, 1024> logits{};
  alignas(64) std::array<float, 512> bias{};
  alignas(64) std::array<std::int32_t, 128> ids{};
  alignas(64) std::array<float, 64> weights{};
  RouteOptions options;
};

TEST_F(RouteErrors, NoneWhereAllIsWell) {
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_EQ(message([](auto& o) { o.groups = 3, o.top_groups = 1; }), "");
  EXPECT_EQ(message([](auto& o) { o.bias = {}, o.scoring = RouteScoring::topk_softmax; }), "");
  EXPECT_EQ(message([&](auto& o) {
              o.logits = strided(logits.data() + E * T, DType::f32, {T, E}, {-E, 1});
            }),
            "");
  EXPECT_EQ(message([&](auto& o) {  // One expert: the stride inside a row does not matter.
              o = {.logits = strided(logits.data(), DType::f32, {T, 1}, {7, 5}),
                   .ids = view(ids.data(), DType::i32, {T, 1}),
                   .weights = view(weights.data(), DType::f32, {T, 1})};
            }),
            "");
}

TEST_F(RouteErrors, Types) {
  EXPECT_EQ(message([&](auto& o) { o.logits = view(logits.data(), DType::f64, {T, E}); }),
            "logits: expected elements of type f32, bf16 or f16, got f64[3, 12] on cpu");
  EXPECT_EQ(message([](auto& o) { o.logits = {}; }),
            "logits: expected elements of type f32, bf16 or f16, got none");
  EXPECT_EQ(message([&](auto& o) { o.bias = view(bias.data(), DType::bf16, {E}); }),
            "bias: expected elements of type f32, got bf16[12] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.ids = view(ids.data(), DType::f32, {T, K}); }),
            "ids: expected elements of type i32 or i64, got f32[3, 4] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.weights = view(weights.data(), DType::f16, {T, K}); }),
            "weights: expected elements of type f32, got f16[3, 4] on cpu");
}

TEST_F(RouteErrors, Shapes) {
  EXPECT_EQ(message([&](auto& o) { o.logits = view(logits.data(), DType::f32, {T * E}); }),
            "logits: expected shape (T, E): tokens, experts, got f32[36] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.logits = view(logits.data(), DType::f32, {T, 0}); }),
            "logits: expected 1 to 512 experts, got f32[3, 0] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.logits = view(logits.data(), DType::f32, {1, 513}); }),
            "logits: expected 1 to 512 experts, got f32[1, 513] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.bias = view(bias.data(), DType::f32, {E + 1}); }),
            "bias: expected shape (12): experts, got f32[13] on cpu");
  const std::string choices = "ids: expected shape (3, K): tokens, and K of 1 to 12 choices, got ";
  EXPECT_EQ(message([&](auto& o) { o.ids = view(ids.data(), DType::i32, {T, E + 1}); }),
            choices + "i32[3, 13] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.ids = view(ids.data(), DType::i32, {T, 0}); }),
            choices + "i32[3, 0] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.ids = view(ids.data(), DType::i32, {T + 1, K}); }),
            choices + "i32[4, 4] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.ids = view(ids.data(), DType::i32, {T * K}); }),
            choices + "i32[12] on cpu");
  EXPECT_EQ(message([&](auto& o) {
              o.logits = view(logits.data(), DType::f32, {T, 64});
              o.ids = view(ids.data(), DType::i32, {T, 17});
            }),
            "ids: expected shape (3, K): tokens, and K of 1 to 16 choices, got i32[3, 17] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.weights = view(weights.data(), DType::f32, {T, K + 1}); }),
            "weights: expected the shape of ids, i32[3, 4] on cpu, got f32[3, 5] on cpu");
}

TEST_F(RouteErrors, Strides) {
  EXPECT_EQ(
      message([&](auto& o) { o.logits = strided(logits.data(), DType::f32, {T, E}, {2 * E, 2}); }),
      "logits: expected a contiguous last dimension (a stride of 1), got f32[3, 12] on cpu with "
      "stride 2");
  EXPECT_EQ(message([&](auto& o) { o.ids = strided(ids.data(), DType::i32, {T, K}, {K + 1, 1}); }),
            "ids: expected a contiguous view, got i32[3, 4] on cpu with strides [5, 1]");
  EXPECT_EQ(message([&](auto& o) {
              o.weights = strided(weights.data(), DType::f32, {T, K}, {K + 1, 1});
            }),
            "weights: expected a contiguous view, got f32[3, 4] on cpu with strides [5, 1]");
  EXPECT_EQ(message([&](auto& o) { o.bias = strided(bias.data(), DType::f32, {E}, {2}); }),
            "bias: expected a contiguous view, got f32[12] on cpu with strides [2]");
}

TEST_F(RouteErrors, Numbers) {
  EXPECT_EQ(message([](auto& o) { o.scoring = static_cast<RouteScoring>(3); }),
            "scoring: expected softmax_topk, topk_softmax or sigmoid, got 3");
  EXPECT_EQ(message([](auto& o) { o.scale = NAN; }), "scale: expected a finite number, got nan");
  EXPECT_EQ(message([](auto& o) { o.scale = INFINITY; }),
            "scale: expected a finite number, got inf");
  EXPECT_EQ(message([](auto& o) { o.scoring = RouteScoring::softmax_topk; }),
            "bias: expected none unless scoring is sigmoid, got f32[12] on cpu");
}

TEST_F(RouteErrors, Groups) {
  const std::string divisor = "groups: expected 1 to 32, a divisor of the 12 experts, got ";
  EXPECT_EQ(message([](auto& o) { o.groups = 0; }), divisor + "0");
  EXPECT_EQ(message([](auto& o) { o.groups = 5; }), divisor + "5");
  EXPECT_EQ(message([](auto& o) { o.groups = -3; }), divisor + "-3");
  EXPECT_EQ(message([&](auto& o) {
              o.bias = {};
              o.logits = view(logits.data(), DType::f32, {T, 66});
              o.groups = 33;
            }),
            "groups: expected 1 to 32, a divisor of the 66 experts, got 33");
  EXPECT_EQ(message([](auto& o) {
              o.bias = {};
              o.scoring = RouteScoring::topk_softmax;
              o.groups = 2;
            }),
            "groups: expected 1 unless scoring is sigmoid, got 2");
  EXPECT_EQ(message([](auto& o) { o.groups = 3, o.top_groups = 4; }),
            "top_groups: expected 1 to 3, the number of groups, got 4");
  EXPECT_EQ(message([](auto& o) { o.top_groups = 0; }),
            "top_groups: expected 1 to 1, the number of groups, got 0");
  EXPECT_EQ(message([](auto& o) { o.groups = 6, o.top_groups = 1; }),
            "top_groups: expected enough groups for 4 choices, got 1, with 2 experts each");
}

TEST_F(RouteErrors, Memory) {
  const auto argument = [&](const std::function<void(RouteOptions&)>& spoil) {
    const std::string all = message(spoil);
    return all.substr(0, all.find(':'));
  };
  const TensorView elsewhere(logits.data(), DType::f32, {T, E}, {Memory::device, 0});
  EXPECT_EQ(message([&](auto& o) { o.logits = elsewhere; }),
            "logits: expected memory of cpu, the stream's device, got f32[3, 12] on cuda:0");
  const auto odd = [](void* data) { return static_cast<std::byte*>(data) + 1; };
  EXPECT_EQ(argument([&](auto& o) { o.logits = view(odd(logits.data()), DType::bf16, {T, E}); }),
            "logits");
  EXPECT_EQ(argument([&](auto& o) { o.bias = view(odd(bias.data()), DType::f32, {E}); }), "bias");
  EXPECT_EQ(argument([&](auto& o) { o.ids = view(odd(ids.data()), DType::i64, {T, K}); }), "ids");
  EXPECT_EQ(argument([&](auto& o) { o.weights = view(odd(weights.data()), DType::f32, {T, K}); }),
            "weights");
}

TEST_F(RouteErrors, Overlap) {
  EXPECT_EQ(message([&](auto& o) { o.ids = view(logits.data() + 35, DType::i32, {T, K}); }),
            "ids: expected memory that does not overlap logits, got i32[3, 4] on cpu over a part "
            "of it, f32[3, 12] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.ids = view(logits.data() + 36, DType::i32, {T, K}); }), "");
  EXPECT_EQ(message([&](auto& o) { o.weights = view(logits.data(), DType::f32, {T, K}); }),
            "weights: expected memory that does not overlap logits, got f32[3, 4] on cpu over a "
            "part of it, f32[3, 12] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.weights = view(bias.data() + 11, DType::f32, {T, K}); }),
            "weights: expected memory that does not overlap bias, got f32[3, 4] on cpu over a part "
            "of it, f32[12] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.weights = view(ids.data() + 11, DType::f32, {T, K}); }),
            "weights: expected memory that does not overlap ids, got f32[3, 4] on cpu over a part "
            "of it, i32[3, 4] on cpu");
}

// On fake GPUs: what is refused before anything is launched.
TEST_F(RouteErrors, OfAGpu) {
  FakeMachine machine;
  const Stream stream(machine.gpu());
  try {
    route(options, stream);
    FAIL() << "accepted memory that the GPU cannot reach";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "logits");
  }
}

TEST_F(RouteErrors, OfAGpuThatIsTooOld) {
  FakeMachine machine({.adjust = [](int, cuda::Properties& gpu) {
    gpu.major = 7;
    gpu.minor = 5;
  }});
  const Place there = machine.gpu().place();
  try {
    route({.logits = TensorView(logits.data(), DType::f32, {T, E}, there),
           .ids = TensorView(ids.data(), DType::i32, {T, K}, there),
           .weights = TensorView(weights.data(), DType::f32, {T, K}, there)},
          Stream(machine.gpu()));
    FAIL() << "accepted a GPU that is too old";
  } catch (const Unsupported& error) {
    EXPECT_EQ(std::string(error.what()),
              "route on cuda:0: needs compute capability 8.0 or later, found 7.5; use the CPU "
              "device");
  }
}

}  // namespace
}  // namespace ps::test
