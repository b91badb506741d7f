// The kernel `decode` of moe(), and which kernel `best` takes.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gpu/moe_gpu.h"
#include "penstock/ops/moe.h"
#include "support/moe_arrays.h"

namespace ps::test {
namespace {

class MoeDecodeGpu : public MoeGpu {
 protected:
  std::string decode(const MoeNumbers& numbers, const MoeStorage& storage = {}) {
    return run(numbers, storage, MoeKernel::decode);
  }
};

// Shapes, types, layouts, strides, biases and activations; ids that are none of an expert; experts
// without a slot.
TEST_F(MoeDecodeGpu, AgreesWithTheFormula) {
  int calls = 0;
  for (std::uint32_t seed = 0; calls < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomMoe random(seed, false);
    const MoeNumbers& numbers = random.numbers();
    if (numbers.shape.shared_width > 0) continue;
    ++calls;
    const std::int64_t experts = numbers.shape.experts;
    MoeStorage storage{
        .layout = seed % 2 == 0 ? GateUpLayout::concatenated : GateUpLayout::interleaved,
        .padding = seed % 3 == 0 ? 8 : 0,
        .gate_up_by_column = seed % 4 == 1,  // of the interleaved ones
        .down_by_column = seed % 7 < 3};
    if (seed % 5 < 2) {  // in reverse, and with the last expert nowhere
      for (std::int64_t e = 0; e < experts; ++e) {
        storage.slots.push_back(static_cast<std::int32_t>(experts - 1 - e));
      }
      if (seed % 5 == 1) storage.slots.back() = -1;
    }
    ASSERT_EQ(decode(numbers, storage), "");
  }
}

TEST_F(MoeDecodeGpu, AnyNumberOfRows) {
  const std::vector<int> counts{0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 0};
  EXPECT_EQ(decode(with_counts(counts, 72, 136, DType::bf16, 1)), "");
  EXPECT_EQ(decode(with_counts(counts, 264, 40, DType::f16, 2)), "");
}

// One token and up to eight have kernels of their own; more choices than rows in a pass.
TEST_F(MoeDecodeGpu, FewTokens) {
  std::mt19937 random(3);
  for (const std::int64_t tokens : {0, 1, 2, 7, 8, 9}) {
    for (const std::int64_t hidden : {8, 136, 520}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens of " << hidden);
      MoeNumbers numbers(
          {.tokens = tokens, .choices = 16, .hidden = hidden, .width = 200, .experts = 20}, random);
      EXPECT_EQ(decode(numbers), "");
      std::fill(numbers.ids.begin(), numbers.ids.end(), 7);
      EXPECT_EQ(decode(numbers), "") << "all on one expert";
    }
  }
}

TEST_F(MoeDecodeGpu, AllTokensOnOneExpert) {
  EXPECT_EQ(decode(with_counts({0, 700, 0}, 128, 64, DType::bf16, 4)), "");
  EXPECT_EQ(decode(with_counts({1}, 8, 8, DType::f16, 5)), "");
}

// More passes than a warp loads at once, and more units than blocks.
TEST_F(MoeDecodeGpu, ManyExperts) {
  std::mt19937 random(6);
  EXPECT_EQ(decode(MoeNumbers(
                {.tokens = 900, .choices = 2, .hidden = 16, .width = 8, .experts = 1024}, random)),
            "");
  EXPECT_EQ(decode(MoeNumbers(
                {.tokens = 8, .choices = 8, .hidden = 520, .width = 264, .experts = 60}, random)),
            "");
}

TEST_F(MoeDecodeGpu, ManyStepsAndUnits) {
  EXPECT_EQ(decode(with_counts({5, 0, 200, 70}, 1032, 528, DType::bf16, 7)), "");
  EXPECT_EQ(decode(with_counts({3, 0, 1, 4}, 2056, 1032, DType::f16, 8)), "");
}

TEST_F(MoeDecodeGpu, WeightsWithContiguousColumns) {
  const std::vector<int> counts{0, 1, 7, 8, 9, 17, 33, 64, 65};
  const MoeStorage storage{
      .layout = GateUpLayout::interleaved, .gate_up_by_column = true, .down_by_column = true};
  EXPECT_EQ(decode(with_counts(counts, 72, 136, DType::bf16, 14), storage), "");
  EXPECT_EQ(decode(with_counts(counts, 328, 40, DType::f16, 15), storage), "");
  EXPECT_EQ(decode(with_counts({2, 0, 5}, 520, 264, DType::bf16, 16), storage), "");
}

TEST_F(MoeDecodeGpu, NoExperts) {
  std::mt19937 random(9);
  const MoeNumbers numbers({.tokens = 70}, random);
  EXPECT_EQ(decode(numbers, {.slots = {-1, 4, 1 << 30, -1}}), "");
}

// Experts that are computed in several calls give the same bits, whichever kernel `best` takes: of
// 40 tokens the host says so, of 150 the counts.
TEST_F(MoeDecodeGpu, PartsHaveTheBitsOfTheWhole) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    MoeNumbers numbers({.tokens = seed % 2 == 0 ? 40 : 150,
                        .choices = 3,
                        .hidden = 136,
                        .width = 72,
                        .experts = 9},
                       random);
    // Of the last ones, most tokens are on one expert.
    if (seed >= 10) {
      for (std::int64_t& id : numbers.ids) id = random() % 8 == 0 ? id : 4;
    }
    expect_parts_are_the_whole(numbers, {}, MoeKernel::best, random);
    if (HasFailure()) return;
  }
}

// Two inputs take turns in one workspace, so that nothing right is left there by the call before,
// and calls follow each other without a pause, so that kernels overlap.
TEST_F(MoeDecodeGpu, TheSameBitsEveryTime) {
  std::mt19937 random(10);
  for (const std::int64_t tokens : {1, 8, 50}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens");
    const MoeShape shape{
        .tokens = tokens, .choices = 4, .hidden = 264, .width = 520, .experts = 30};
    const MoeNumbers numbers[] = {{shape, random}, {shape, random}};
    MoeArrays arrays[] = {MoeArrays(numbers[0]), MoeArrays(numbers[1])};
    OnGpu calls[] = {{arrays[0], gpu, *stream}, {arrays[1], gpu, *stream}};
    calls[1].options().workspace = calls[0].options().workspace;
    std::vector<std::uint8_t> first[2];
    for (int which = 0; which < 2; ++which) {
      moe(calls[which].options(), *stream);
      calls[which].fetch();
      ASSERT_EQ(wrong(arrays[which].out(), expected(numbers[which])), "");
      first[which] = bits_of(arrays[which]);
    }
    for (int repeat = 0; repeat < 20; ++repeat) {
      for (int i = 0; i < 50; ++i) moe(calls[i % 2].options(), *stream);
      for (int which = 0; which < 2; ++which) {
        calls[which].fetch();
        ASSERT_EQ(bits_of(arrays[which]), first[which]) << "repeat " << repeat;
      }
    }
  }
}

// `best` is `decode` for up to 64 tokens and for few rows per expert, and `large` for many rows, on
// average or because one expert has most of them.
TEST_F(MoeDecodeGpu, BestIsOneOfTheKernels) {
  std::mt19937 random(11);
  const auto same_as = [&](const MoeNumbers& numbers, MoeKernel kernel) {
    EXPECT_EQ(bits(numbers, {}, MoeKernel::best), bits(numbers, {}, kernel));
  };
  const auto numbers = [&](std::int64_t tokens, std::int64_t experts) {
    return MoeNumbers(
        {.tokens = tokens, .choices = 2, .hidden = 136, .width = 200, .experts = experts}, random);
  };
  same_as(numbers(64, 3), MoeKernel::decode);
  same_as(numbers(160, 20), MoeKernel::decode);
  same_as(numbers(2000, 20), MoeKernel::large);
  MoeNumbers crowded = numbers(250, 20);
  for (std::int64_t& id : crowded.ids) id = random() % 20 == 0 ? id : 4;
  same_as(crowded, MoeKernel::large);
}

// The result of a token does not depend on the others.
TEST_F(MoeDecodeGpu, BatchInvariantCallsTakeTheLargeKernel) {
  std::mt19937 random(12);
  const MoeNumbers numbers({.tokens = 5, .choices = 2, .hidden = 136, .width = 200}, random);
  MoeArrays arrays(numbers);
  OnGpu there(arrays, gpu, *stream);
  there.options().batch_invariant = true;
  moe(there.options(), *stream);
  there.fetch();
  EXPECT_EQ(bits_of(arrays), bits(numbers, {}, MoeKernel::large));
}

TEST_F(MoeDecodeGpu, CanBeCaptured) {
  std::mt19937 random(13);
  for (const std::int64_t tokens : {1, 40, 150}) {
    const MoeNumbers numbers(
        {.tokens = tokens, .choices = 2, .hidden = 64, .width = 72, .experts = 30}, random);
    expect_replays(numbers, MoeKernel::best);
  }
}

}  // namespace
}  // namespace ps::test
