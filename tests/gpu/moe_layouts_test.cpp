// moe() on a GPU with weights in every layout, activations, biases and a shared expert, by each of
// its kernels.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gpu/moe_gpu.h"
#include "penstock/base/error.h"
#include "penstock/ops/moe.h"
#include "support/moe_arrays.h"

namespace ps::test {
namespace {

constexpr GateUpLayout layouts[] = {GateUpLayout::concatenated, GateUpLayout::interleaved};
constexpr MoeActivation activations[] = {MoeActivation::swiglu, MoeActivation::geglu,
                                         MoeActivation::geglu_tanh, MoeActivation::clamped_swiglu};

class MoeLayoutsGpu : public MoeGpu, public testing::WithParamInterface<MoeKernel> {
 protected:
  std::vector<DType> types() const {
    if (GetParam() == MoeKernel::portable) return {DType::bf16, DType::f16, DType::f32};
    return {DType::bf16, DType::f16};
  }

  // Whether the kernel takes weights whose columns are contiguous in every layout.
  bool takes_columns() const { return GetParam() != MoeKernel::decode; }

  std::string run(const MoeNumbers& numbers, const MoeStorage& storage = {}) {
    return MoeGpu::run(numbers, storage, GetParam());
  }

  std::vector<std::uint8_t> bits(const MoeNumbers& numbers, const MoeStorage& storage = {}) {
    return MoeGpu::bits(numbers, storage, GetParam());
  }
};

std::string kernel_name(const testing::TestParamInfo<MoeKernel>& kernel) {
  return kernel.param == MoeKernel::large    ? "Large"
         : kernel.param == MoeKernel::decode ? "Decode"
                                             : "Portable";
}
INSTANTIATE_TEST_SUITE_P(Kernels, MoeLayoutsGpu,
                         testing::Values(MoeKernel::large, MoeKernel::decode, MoeKernel::portable),
                         kernel_name);

// The layouts of gate_up and down that the kernel takes.
std::vector<MoeStorage> storages(bool columns, std::int64_t padding) {
  std::vector<MoeStorage> all;
  for (const GateUpLayout layout : layouts) {
    for (int by_column = 0; by_column < (columns ? 4 : 1); ++by_column) {
      all.push_back({.layout = layout,
                     .padding = padding,
                     .gate_up_by_column = by_column % 2 == 1,
                     .down_by_column = by_column / 2 == 1});
    }
  }
  return all;
}

std::string described(const MoeShape& shape, const MoeStorage& storage) {
  return "type " + std::to_string(static_cast<int>(shape.type)) + ", activation " +
         std::to_string(static_cast<int>(shape.activation)) + ", layout " +
         std::to_string(static_cast<int>(storage.layout)) + ", by column " +
         std::to_string(storage.gate_up_by_column) + std::to_string(storage.down_by_column);
}

// Experts of one, two and three units of rows, and d and n that are not whole steps, panels and
// columns of tiles.
TEST_P(MoeLayoutsGpu, EveryLayoutActivationAndBias) {
  const std::vector<int> counts{1, 0, 65, 17, 130};
  std::uint32_t seed = 0;
  for (const DType type : types()) {
    for (const MoeActivation activation : activations) {
      for (const bool biased : {false, true}) {
        const MoeShape shape{.hidden = 328,
                             .width = 152,
                             .type = type,
                             .gate_up_bias = biased,
                             .down_bias = biased,
                             .activation = activation,
                             .limit = 0.75F};
        const MoeNumbers numbers = with_counts(counts, shape, ++seed);
        for (const MoeStorage& storage : storages(takes_columns(), seed % 2 == 0 ? 8 : 0)) {
          ASSERT_EQ(run(numbers, storage), "") << described(shape, storage);
        }
      }
    }
  }
}

// One of the two biases alone, and biases whose slots begin at odd elements.
TEST_P(MoeLayoutsGpu, EitherBias) {
  for (const bool first : {false, true}) {
    const MoeShape shape{.hidden = 72, .width = 136, .gate_up_bias = first, .down_bias = !first};
    const MoeNumbers numbers = with_counts({3, 70, 0, 200}, shape, 1);
    for (const GateUpLayout layout : layouts) {
      MoeArrays arrays(numbers, {.layout = layout});
      OnGpu there(arrays, gpu, *stream);
      MoeOptions& call = there.options();
      call.kernel = GetParam();
      TensorView& bias = first ? call.gate_up_bias : call.down_bias;
      const std::int64_t row = bias.extent(1) + 3;
      const DeviceBuffer moved(gpu, static_cast<std::size_t>(row * 4 + 1) * 2);
      const auto* const from = static_cast<const std::byte*>(bias.data());
      auto* const to = moved.view().data + 2;
      for (std::int64_t e = 0; e < 4; ++e) {
        const auto bytes = static_cast<std::size_t>(bias.extent(1)) * 2;
        copy({to + e * row * 2, bytes, gpu.place()},
             {const_cast<std::byte*>(from) + e * bias.extent(1) * 2, bytes, gpu.place()}, *stream);
      }
      const std::int64_t extents[] = {4, bias.extent(1)}, strides[] = {row, 1};
      bias = TensorView(to, bias.dtype(), extents, strides, gpu.place());
      moe(call, *stream);
      there.fetch();
      ASSERT_EQ(wrong(arrays.out(), expected(numbers)), "") << first;
    }
  }
}

TEST_P(MoeLayoutsGpu, RandomCalls) {
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomMoe call(seed, GetParam() == MoeKernel::portable);
    OnGpu there(call.arrays(), gpu, *stream);
    MoeOptions& options = there.options();
    const auto by_column = [](const TensorView& view) {
      return view.data() != nullptr && view.strides()[view.rank() - 1] != 1;
    };
    const bool columns = by_column(options.gate_up) || by_column(options.down) ||
                         by_column(options.shared_gate_up) || by_column(options.shared_down);
    if (columns && !takes_columns()) continue;
    options.kernel = GetParam();
    moe(options, *stream);
    there.fetch();
    ASSERT_EQ(call.wrong(), "");
    ASSERT_TRUE(there.surroundings_untouched());
  }
}

// The products are added in the same order whichever dimension of the weights is contiguous.
TEST_P(MoeLayoutsGpu, TransposedWeightsGiveTheBitsOfPlainOnes) {
  if (!takes_columns()) GTEST_SKIP() << "the kernel does not take all transposed weights";
  for (const MoeActivation activation : activations) {
    for (const bool biased : {false, true}) {
      const MoeNumbers numbers = with_counts({1, 130, 0, 64},
                                             MoeShape{.hidden = 200,
                                                      .width = 264,
                                                      .gate_up_bias = biased,
                                                      .down_bias = biased,
                                                      .activation = activation,
                                                      .shared_width = 136},
                                             2);
      const auto plain = bits(numbers);
      for (MoeStorage storage : storages(true, 0)) {
        storage.shared_gate_up_by_column = storage.gate_up_by_column;
        storage.shared_down_by_column = storage.down_by_column;
        ASSERT_EQ(bits(numbers, storage), plain) << described(numbers.shape, storage);
      }
    }
  }
}

TEST_P(MoeLayoutsGpu, DecodeRefusesTransposedConcatenatedWeights) {
  if (takes_columns()) GTEST_SKIP() << "the kernel takes them";
  const MoeNumbers numbers = with_counts({3, 2}, MoeShape{}, 3);
  MoeStorage storage{.gate_up_by_column = true};
  EXPECT_THROW(run(numbers, storage), InvalidArgument);
  storage.layout = GateUpLayout::interleaved;
  EXPECT_EQ(run(numbers, storage), "");
  EXPECT_EQ(run(numbers, {.down_by_column = true}), "");
}

TEST_P(MoeLayoutsGpu, ASharedExpert) {
  for (const DType type : types()) {
    for (const DType weight_type : {DType::f32, DType::bf16, DType::f16}) {
      for (const bool weighted : {false, true}) {
        std::mt19937 random(4);
        const MoeNumbers numbers({.tokens = 210,
                                  .hidden = 136,
                                  .width = 40,
                                  .type = type,
                                  .gate_up_bias = true,
                                  .down_bias = true,
                                  .shared_width = 200,
                                  .shared_weighted = weighted,
                                  .shared_weight_type = weight_type},
                                 random);
        MoeStorage storage{.slots = {-1, 0, 3, 1}, .slot_count = 2};
        ASSERT_EQ(run(numbers, storage), "");
        if (!takes_columns()) continue;
        storage.shared_gate_up_by_column = storage.shared_down_by_column = true;
        for (const GateUpLayout layout : layouts) {
          storage.layout = layout;
          ASSERT_EQ(run(numbers, storage), "") << static_cast<int>(layout);
        }
      }
    }
  }
}

// Where no other expert is there, it is all of the result.
TEST_P(MoeLayoutsGpu, ASharedExpertAlone) {
  std::mt19937 random(5);
  const MoeNumbers numbers({.tokens = 70, .hidden = 64, .shared_width = 24}, random);
  EXPECT_EQ(run(numbers, {.slots = {-1, -1, -1, -1}, .slot_count = 1}), "");
}

// Experts that are computed in several calls, with their biases, and the shared expert at the end.
TEST_P(MoeLayoutsGpu, PartsHaveTheBitsOfTheWhole) {
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const MoeNumbers numbers({.tokens = 150,
                              .choices = 3,
                              .hidden = 136,
                              .width = 72,
                              .experts = 7,
                              .gate_up_bias = true,
                              .down_bias = true,
                              .activation = activations[seed % 4],
                              .shared_width = 48,
                              .shared_weighted = true},
                             random);
    MoeStorage storage{.layout = layouts[seed / 4]};
    if (takes_columns()) storage.gate_up_by_column = storage.down_by_column = seed % 2 == 1;
    expect_parts_are_the_whole(numbers, storage, GetParam(), random);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ps::test
