// What moe() computes on the CPU with activations, biases, transposed weights and a shared expert.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "ops/moe/cpu_activation.h"
#include "penstock/host/device.h"
#include "penstock/ops/moe.h"
#include "support/moe_arrays.h"
#include "support/moe_call.h"

namespace ps::test {
namespace {

constexpr MoeActivation all_activations[] = {MoeActivation::swiglu, MoeActivation::geglu,
                                             MoeActivation::geglu_tanh,
                                             MoeActivation::clamped_swiglu};
constexpr DType all_types[] = {DType::bf16, DType::f16, DType::f32};

class MoeExtras : public testing::Test {
 protected:
  std::vector<std::uint8_t> run(const MoeNumbers& numbers, const MoeStorage& storage = {}) const {
    MoeArrays arrays(numbers, storage);
    const std::vector<std::uint8_t> out = moe_bytes(arrays, stream);
    EXPECT_EQ(wrong(arrays.out(), expected(numbers, arrays.present())), "");
    return out;
  }

  Stream stream{Device::cpu()};
};

// Also where exp overflows, where the limits of the clamps are, and for NaN.
TEST(MoeActivations, AgreeWithTheirFormulas) {
  const std::vector<float> numbers{-200,  -95,  -30,   -8, -2.5F, -0.75F, -1e-3F, 0,
                                   1e-8F, 0.3F, 0.75F, 1,  3,     8,      90,     200};
  for (const MoeActivation activation : all_activations) {
    for (const float limit : {0.75F, 7.F}) {
      const MoeShape shape{.activation = activation, .alpha = 1.702F, .limit = limit};
      for (const float up : numbers) {
        const std::vector<float> ups(numbers.size(), up);
        std::vector<float> found(numbers.size());
        mixture::activate_row({activation, shape.alpha, limit}, numbers.data(), ups.data(),
                              found.data(), found.size());
        for (std::size_t i = 0; i < found.size(); ++i) {
          const double wanted = moe_reference::activated(shape, numbers[i], up);
          EXPECT_NEAR(found[i], wanted, 4e-7 * std::abs(wanted) + 2e-7 * (1 + std::abs(up)))
              << static_cast<int>(activation) << " of " << numbers[i] << ", " << up;
        }
      }
    }
    const float good = 1, bad = NAN;
    float result = 0;
    mixture::activate_row({activation, 1.702F, 7.F}, &bad, &good, &result, 1);
    EXPECT_TRUE(std::isnan(result));
    mixture::activate_row({activation, 1.702F, 7.F}, &good, &bad, &result, 1);
    EXPECT_TRUE(std::isnan(result));
  }
}

TEST_F(MoeExtras, EveryActivation) {
  for (const DType type : all_types) {
    for (const MoeActivation activation : all_activations) {
      for (const float limit : {0.5F, 7.F}) {
        std::mt19937 random(1);
        run({{.tokens = 9,
              .hidden = 40,
              .width = 24,
              .type = type,
              .activation = activation,
              .alpha = 0.9F,
              .limit = limit},
             random});
      }
    }
  }
}

TEST_F(MoeExtras, BiasesInBothLayouts) {
  for (const DType type : all_types) {
    for (const int which : {1, 2, 3}) {
      std::mt19937 random(2);
      const MoeNumbers numbers({.tokens = 30,
                                .hidden = 72,
                                .width = 40,
                                .type = type,
                                .gate_up_bias = which != 2,
                                .down_bias = which != 1},
                               random);
      const auto wanted = run(numbers);
      EXPECT_EQ(run(numbers, {.layout = GateUpLayout::interleaved}), wanted);
      EXPECT_EQ(run(numbers, {.slots = {2, 5, 0, 3}, .slot_count = 6}), wanted);
      run(numbers, {.layout = GateUpLayout::interleaved, .padding = 3});
    }
  }
}

TEST_F(MoeExtras, TransposedWeightsGiveTheBitsOfPlainOnes) {
  for (const DType type : all_types) {
    std::mt19937 random(3);
    const MoeNumbers numbers({.tokens = 40,
                              .hidden = 200,
                              .width = 136,
                              .type = type,
                              .gate_up_bias = true,
                              .shared_width = 72},
                             random);
    for (const GateUpLayout layout : {GateUpLayout::concatenated, GateUpLayout::interleaved}) {
      const auto wanted = run(numbers, {.layout = layout});
      EXPECT_EQ(run(numbers, {.layout = layout, .gate_up_by_column = true}), wanted);
      EXPECT_EQ(run(numbers, {.layout = layout, .down_by_column = true}), wanted);
      EXPECT_EQ(run(numbers, {.layout = layout, .shared_gate_up_by_column = true}), wanted);
      EXPECT_EQ(run(numbers, {.layout = layout, .shared_down_by_column = true}), wanted);
      run(numbers,
          {.layout = layout, .padding = 5, .gate_up_by_column = true, .down_by_column = true});
    }
  }
}

TEST_F(MoeExtras, ASharedExpertWithAndWithoutWeights) {
  for (const DType type : all_types) {
    for (const bool weighted : {false, true}) {
      for (const DType weight_type : all_types) {
        std::mt19937 random(4);
        run({{.tokens = 33,
              .hidden = 72,
              .width = 40,
              .type = type,
              .shared_width = 104,
              .shared_weighted = weighted,
              .shared_weight_type = weight_type},
             random},
            {.slots = {-1, 0, 3, 1}, .slot_count = 2});
      }
    }
  }
}

// It has the others' layout and activation, and none of their biases.
TEST_F(MoeExtras, ASharedExpertIsComputedLikeTheOthers) {
  for (const MoeActivation activation : all_activations) {
    std::mt19937 random(5);
    const MoeNumbers numbers({.tokens = 20,
                              .gate_up_bias = true,
                              .down_bias = true,
                              .activation = activation,
                              .limit = 0.5F,
                              .shared_width = 24},
                             random);
    EXPECT_EQ(run(numbers), run(numbers, {.layout = GateUpLayout::interleaved}));
  }
}

// Where no other expert is there, it is all of the result.
TEST_F(MoeExtras, ASharedExpertAlone) {
  std::mt19937 random(6);
  const MoeNumbers numbers({.tokens = 7, .shared_width = 16}, random);
  run(numbers, {.slots = {-1, -1, -1, -1}, .slot_count = 1});
}

}  // namespace
}  // namespace ps::test
