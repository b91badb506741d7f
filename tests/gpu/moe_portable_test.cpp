// The portable kernels of moe(), on any GPU: the formula within its tolerance, the same bits in
// whatever way the work is cut, and nothing written but `out` and the workspace.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gpu/gpu_test.h"
#include "gpu/moe_gpu.h"
#include "penstock/ops/moe.h"
#include "support/moe_arrays.h"

namespace ps::test {
namespace {

constexpr DType types[] = {DType::bf16, DType::f16, DType::f32};
constexpr GateUpLayout layouts[] = {GateUpLayout::concatenated, GateUpLayout::interleaved};
// Numbers of rows at which a tile, or what the warps of a tile divide, begins or ends.
const std::vector<int> row_counts{0,  1,  7,  15, 16,  17,  31,  32,  33,  63,
                                  64, 65, 96, 97, 127, 128, 129, 193, 257, 0};

class MoePortableGpu : public MoeCallsGpu {
 protected:
  std::string run(const MoeNumbers& numbers, const MoeStorage& storage = {}) {
    return MoeCallsGpu::run(numbers, storage, MoeKernel::portable);
  }
};

TEST_F(MoePortableGpu, AgreesWithTheFormula) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomMoe call(seed, true);
    OnGpu there(call.arrays(), gpu, *stream);
    there.options().kernel = MoeKernel::portable;
    moe(there.options(), *stream);
    there.fetch();
    ASSERT_EQ(call.wrong(), "");
    ASSERT_TRUE(there.surroundings_untouched());
  }
}

// f32 has no other kernel.
TEST_F(MoePortableGpu, IsTheBestForF32) {
  std::mt19937 random(1);
  const MoeNumbers numbers({.tokens = 150, .hidden = 72, .width = 40, .type = DType::f32}, random);
  MoeArrays arrays(numbers), same(numbers);
  OnGpu best(arrays, gpu, *stream), portable(same, gpu, *stream);
  portable.options().kernel = MoeKernel::portable;
  moe(best.options(), *stream);
  moe(portable.options(), *stream);
  best.fetch();
  portable.fetch();
  EXPECT_EQ(wrong(arrays.out(), expected(numbers)), "");
  EXPECT_EQ(bits_of(arrays), bits_of(same));
}

// d and n are not whole steps and columns; in the second case items have fewer steps than their
// successors are looked up ahead, in the third more.
TEST_F(MoePortableGpu, AnyNumberOfRowsInEveryLayout) {
  struct Size {
    std::int64_t hidden, width;
  };
  for (const DType type : types) {
    for (const auto& [hidden, width] : {Size{264, 136}, Size{72, 40}}) {
      const MoeNumbers numbers = with_counts(row_counts, hidden, width, type, 2);
      for (const GateUpLayout layout : layouts) {
        for (const bool by_column : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << name(type) << ", d " << hidden << ", n " << width
                       << (layout == GateUpLayout::interleaved ? ", interleaved" : "")
                       << (by_column ? ", by column" : ""));
          EXPECT_EQ(
              run(numbers,
                  {.layout = layout, .gate_up_by_column = by_column, .down_by_column = by_column}),
              "");
        }
      }
    }
  }
}

// The smallest item, and more items than there are blocks, each of one step.
TEST_F(MoePortableGpu, OneStep) {
  for (const DType type : types) {
    EXPECT_EQ(run(with_counts({1}, 8, 8, type, 3)), "");
    EXPECT_EQ(run(with_counts(std::vector<int>(1024, 2), 16, 8, type, 4)), "");
  }
}

// Several items for every block, of each number of steps up to some more than their successors are
// looked up ahead. Every token has an expert of its own; all of them are in one slot.
TEST_F(MoePortableGpu, ManyItemsOfEveryNumberOfSteps) {
  constexpr std::int64_t tokens = 1000;
  for (const DType type : types) {
    const std::int64_t step = type == DType::f32 ? 16 : 32;
    for (std::int64_t size = step - 8; size < 11 * step; size += step) {
      SCOPED_TRACE(testing::Message() << name(type) << ", d and n " << size);
      std::mt19937 random(13);
      const MoeNumbers numbers({.tokens = tokens,
                                .choices = 1,
                                .hidden = size,
                                .width = size,
                                .experts = 1,
                                .type = type},
                               random);
      MoeArrays arrays(numbers);
      OnGpu there(arrays, gpu, *stream);
      std::vector<std::int32_t> ids(tokens);
      std::iota(ids.begin(), ids.end(), 0);
      const DeviceBuffer id(gpu, tokens * 4), slots(gpu, tokens * 4);
      send(id.view(), 0, ids, *stream);
      fill(slots.view(), 0, *stream);
      MoeOptions call = there.options();
      call.kernel = MoeKernel::portable;
      call.ids = TensorView(id.view().data, DType::i32, {tokens, 1}, gpu.place());
      call.slots = TensorView(slots.view().data, DType::i32, {tokens}, gpu.place());
      const DeviceBuffer memory(gpu, moe_workspace_bytes(call));
      call.workspace = memory.view();
      moe(call, *stream);
      there.fetch();
      ASSERT_EQ(wrong(arrays.out(), expected(numbers)), "");
    }
  }
}

TEST_F(MoePortableGpu, ManyStepsAndColumns) {
  for (const DType type : types) {
    EXPECT_EQ(run(with_counts({5, 0, 200, 70}, 1032, 528, type, 5)), "");
  }
}

// Every activation with biases, in tiles of 128 rows.
TEST_F(MoePortableGpu, ActivationsAndBiases) {
  std::mt19937 random(6);
  for (const DType type : types) {
    for (const MoeActivation activation :
         {MoeActivation::swiglu, MoeActivation::geglu, MoeActivation::geglu_tanh,
          MoeActivation::clamped_swiglu}) {
      for (const GateUpLayout layout : layouts) {
        for (const bool by_column : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << name(type) << ", activation " << static_cast<int>(activation)
                       << (layout == GateUpLayout::interleaved ? ", interleaved" : "")
                       << (by_column ? ", by column" : ""));
          const MoeNumbers numbers({.tokens = 300,
                                    .choices = 2,
                                    .hidden = 136,
                                    .width = 200,
                                    .experts = 3,
                                    .type = type,
                                    .gate_up_bias = true,
                                    .down_bias = true,
                                    .activation = activation,
                                    .limit = 0.75F},
                                   random);
          EXPECT_EQ(run(numbers, {.layout = layout,
                                  .padding = 8,
                                  .gate_up_by_column = by_column,
                                  .down_by_column = by_column}),
                    "");
        }
      }
    }
  }
}

TEST_F(MoePortableGpu, NoExperts) {
  std::mt19937 random(7);
  const MoeNumbers numbers({.tokens = 70}, random);
  EXPECT_EQ(run(numbers, {.slots = {-1, 4, 1 << 30, -1}}), "");
}

TEST_F(MoePortableGpu, NanStaysInItsToken) {
  for (const DType type : types) {
    for (const bool by_column : {false, true}) {
      expect_nan_stays_in_its_token(
          type, {.gate_up_by_column = by_column, .down_by_column = by_column}, MoeKernel::portable);
    }
  }
}

TEST_F(MoePortableGpu, PartsHaveTheBitsOfTheWhole) {
  for (std::uint32_t seed = 0; seed < 9; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const MoeNumbers numbers({.tokens = 150,
                              .choices = 3,
                              .hidden = 136,
                              .width = 72,
                              .experts = 9,
                              .type = types[seed % 3]},
                             random);
    expect_parts_are_the_whole(numbers, {}, MoeKernel::portable, random);
    if (HasFailure()) return;
  }
}

// Which block takes which of several hundred items differs from run to run; the bits do not. Two
// inputs take turns in one workspace, so that nothing right is left there by the run before.
// Kernels of another stream take multiprocessors in some of the runs.
TEST_F(MoePortableGpu, TheSameBitsEveryTime) {
  OtherWork other(gpu);
  for (const DType type : types) {
    std::mt19937 random(9);
    const MoeShape shape{
        .tokens = 700, .choices = 4, .hidden = 264, .width = 328, .experts = 11, .type = type};
    const MoeNumbers numbers[] = {{shape, random}, {shape, random}};
    MoeArrays arrays[] = {MoeArrays(numbers[0]), MoeArrays(numbers[1])};
    OnGpu calls[] = {{arrays[0], gpu, *stream}, {arrays[1], gpu, *stream}};
    calls[1].options().workspace = calls[0].options().workspace;
    for (OnGpu& call : calls) call.options().kernel = MoeKernel::portable;
    const std::vector<std::uint8_t> first[] = {calls[0].run_again(), calls[1].run_again()};
    for (int repeat = 0; repeat < 1000; ++repeat) {
      if (repeat % 3 > 0) other.enqueue();
      ASSERT_EQ(calls[repeat % 2].run_again(), first[repeat % 2])
          << name(type) << ", repeat " << repeat;
    }
  }
}

TEST_F(MoePortableGpu, ATokenDoesNotDependOnItsNeighbours) {
  expect_tokens_are_independent(MoeKernel::portable);
}

TEST_F(MoePortableGpu, CanBeCaptured) {
  for (const DType type : types) {
    std::mt19937 random(11);
    const MoeNumbers numbers(
        {.tokens = 100, .choices = 2, .hidden = 64, .width = 72, .experts = 5, .type = type},
        random);
    expect_replays(numbers, MoeKernel::portable);
  }
}

// Results of experts that do not fit into 2^31 elements: tokens of NaN but for the last ones, which
// have the bits that they have alone.
TEST_F(MoePortableGpu, MoreThanTwoToThe31Elements) {
  constexpr std::int64_t last = 8, tokens = 16384 * 8 + last, choices = 8, hidden = 2056;
  static_assert((tokens - last) * choices * hidden > std::int64_t{1} << 31);
  std::mt19937 random(12);
  const MoeNumbers few(
      {.tokens = last, .choices = choices, .hidden = hidden, .width = 8, .experts = 8}, random);
  MoeArrays small(few);
  OnGpu there(small, gpu, *stream);
  there.options().kernel = MoeKernel::portable;
  moe(there.options(), *stream);
  there.fetch();
  ASSERT_EQ(wrong(small.out(), expected(few)), "");

  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < tokens * choices; ++i) {
    ids.push_back(static_cast<std::int32_t>(few.ids[static_cast<std::size_t>(i) % few.ids.size()]));
  }
  std::vector<float> weights;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    weights.push_back(few.weights[i % few.weights.size()]);
  }
  const std::size_t x_bytes = std::size_t{tokens} * hidden * 2;
  const std::size_t before = std::size_t{tokens - last} * hidden;
  const DeviceBuffer x(gpu, x_bytes), out(gpu, x_bytes), id(gpu, ids.size() * 4),
      weight(gpu, ids.size() * 4);
  fill(x.view(), poison, *stream);
  fill(out.view(), poison, *stream);
  std::vector<std::uint16_t> rows;
  for (const float each : few.x) {
    rows.push_back(static_cast<std::uint16_t>(encoded(each, DType::bf16)));
  }
  send(x.view(), before * 2, rows, *stream);
  send(id.view(), 0, ids, *stream);
  send(weight.view(), 0, weights, *stream);
  MoeOptions call = there.options();
  const auto view = [&](const DeviceBuffer& memory, DType type, std::int64_t columns) {
    return TensorView(memory.view().data, type, {tokens, columns}, gpu.place());
  };
  call.x = view(x, DType::bf16, hidden);
  call.out = view(out, DType::bf16, hidden);
  call.ids = view(id, DType::i32, choices);
  call.weights = view(weight, DType::f32, choices);
  const DeviceBuffer memory(gpu, moe_workspace_bytes(call));
  call.workspace = memory.view();
  moe(call, *stream);
  const auto got = test::fetch<std::uint16_t>(out.view(), before * 2, rows.size(), *stream);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    ASSERT_EQ(got[i], small.out().bits({at / hidden, at % hidden})) << i;
  }
}

}  // namespace
}  // namespace ps::test
