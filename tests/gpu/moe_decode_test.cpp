// The kernel `decode` of moe(), and which kernel `best` takes.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpu/moe_gpu.h"
#include "gpu/recording.h"
#include "penstock/host/cuda.h"
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

// Ids that give all experts the same number of rows.
std::vector<std::int64_t> spread_ids(const MoeShape& shape) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < shape.tokens * shape.choices; ++i) ids.push_back(i % shape.experts);
  return ids;
}
// Ids that give the first K experts all rows.
std::vector<std::int64_t> crowded_ids(const MoeShape& shape) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < shape.tokens * shape.choices; ++i) ids.push_back(i % shape.choices);
  return ids;
}

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
  const std::vector<int> counts{0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 193, 0};
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
// and the two calls of a repeat follow each other without a pause, so that their kernels overlap.
// Of 150 tokens the counts choose, `decode` for the first input and `large` for the second. Kernels
// of another stream take multiprocessors in some of the repeats.
TEST_F(MoeDecodeGpu, TheSameBitsEveryTime) {
  std::mt19937 random(10);
  OtherWork other(gpu);
  for (const std::int64_t tokens : {1, 8, 50, 150}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens");
    const MoeShape shape{
        .tokens = tokens, .choices = 4, .hidden = 264, .width = 520, .experts = 30};
    MoeNumbers numbers[] = {{shape, random}, {shape, random}};
    if (tokens == 150) {
      numbers[0].ids = spread_ids(shape);
      numbers[1].ids = crowded_ids(shape);
    }
    MoeArrays arrays[] = {MoeArrays(numbers[0]), MoeArrays(numbers[1])};
    OnGpu calls[] = {{arrays[0], gpu, *stream}, {arrays[1], gpu, *stream}};
    calls[1].options().workspace = calls[0].options().workspace;
    std::vector<std::uint8_t> first[2];
    for (const int which : {0, 1}) {
      first[which] = calls[which].run_again();
      EXPECT_EQ(calls[which].products(),
                tokens == 150 && which == 1 ? MoeKernel::large : MoeKernel::decode);
      calls[which].fetch();
      ASSERT_EQ(wrong(arrays[which].out(), expected(numbers[which])), "");
    }
    for (int repeat = 0; repeat < 1000; ++repeat) {
      const int before = repeat % 2, after = 1 - before;
      for (const OnGpu& each : calls) each.poison_out();
      if (repeat % 3 > 0) other.enqueue();
      moe(calls[before].options(), *stream);
      moe(calls[after].options(), *stream);
      for (const int which : {0, 1}) {
        ASSERT_EQ(calls[which].out_bytes(), first[which]) << "repeat " << repeat;
      }
    }
  }
}

// `best` is `decode` for up to 64 tokens and for few rows per expert, and `large` for many rows, on
// average or because one expert has most of them, and for weights that `decode` does not take.
TEST_F(MoeDecodeGpu, BestIsOneOfTheKernels) {
  std::mt19937 random(11);
  const auto expect = [&](MoeKernel products, const MoeNumbers& numbers, MoeKernel kernel,
                          const MoeStorage& storage = {}) {
    MoeArrays arrays(numbers, storage);
    OnGpu there(arrays, gpu, *stream);
    there.options().kernel = kernel;
    moe(there.options(), *stream);
    EXPECT_EQ(there.products(), products) << numbers.shape.tokens << " tokens";
    there.fetch();
    EXPECT_EQ(wrong(arrays.out(), expected(numbers)), "");
  };
  const auto numbers = [&](std::int64_t tokens, std::int64_t experts) {
    return MoeNumbers(
        {.tokens = tokens, .choices = 2, .hidden = 136, .width = 200, .experts = experts}, random);
  };
  const MoeNumbers few = numbers(64, 3), several = numbers(160, 20), many = numbers(2000, 20);
  MoeNumbers crowded = numbers(250, 20);
  crowded.ids = crowded_ids(crowded.shape);
  expect(MoeKernel::decode, few, MoeKernel::best);
  expect(MoeKernel::decode, several, MoeKernel::best);
  expect(MoeKernel::large, many, MoeKernel::best);
  expect(MoeKernel::large, crowded, MoeKernel::best);
  expect(MoeKernel::large, few, MoeKernel::best, {.gate_up_by_column = true});
  // As named, whatever `best` would be.
  expect(MoeKernel::large, few, MoeKernel::large);
  expect(MoeKernel::decode, many, MoeKernel::decode);
}

// The result of a token does not depend on the others.
TEST_F(MoeDecodeGpu, BatchInvariantCallsTakeTheLargeKernel) {
  std::mt19937 random(12);
  for (const std::int64_t tokens : {5, 150}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens");
    const MoeNumbers numbers(
        {.tokens = tokens, .choices = 2, .hidden = 136, .width = 200, .experts = 30}, random);
    MoeArrays arrays(numbers);
    OnGpu there(arrays, gpu, *stream);
    moe(there.options(), *stream);
    EXPECT_EQ(there.products(), MoeKernel::decode);
    there.options().batch_invariant = true;
    there.poison_results();
    moe(there.options(), *stream);
    EXPECT_EQ(there.products(), MoeKernel::large);
    there.fetch();
    EXPECT_EQ(wrong(arrays.out(), expected(numbers)), "");
    EXPECT_EQ(bits_of(arrays), bits(numbers, {}, MoeKernel::large));
  }
}

TEST_F(MoeDecodeGpu, CanBeCaptured) {
  std::mt19937 random(13);
  for (const std::int64_t tokens : {1, 40, 150}) {
    const MoeNumbers numbers(
        {.tokens = tokens, .choices = 2, .hidden = 64, .width = 72, .experts = 30}, random);
    expect_replays(numbers, MoeKernel::best);
  }
}

// A graph that is captured once runs the kernel that suits the ids of each replay.
TEST_F(MoeDecodeGpu, ReplaysChooseByTheirCounts) {
  std::mt19937 random(17);
  MoeNumbers spread({.tokens = 150, .choices = 2, .hidden = 136, .width = 200, .experts = 30},
                    random);
  spread.ids = spread_ids(spread.shape);
  MoeNumbers crowded = spread;
  crowded.ids = crowded_ids(crowded.shape);
  MoeArrays arrays(spread);
  OnGpu there(arrays, gpu, *stream);
  for (const auto* ids : {&spread.ids, &crowded.ids}) {  // loads the kernels
    there.send_ids(*ids);
    moe(there.options(), *stream);
  }
  stream->synchronize();
  Recording recording(cuda_stream(*stream));
  moe(there.options(), *stream);
  ASSERT_EQ(recording.end(), cudaSuccess);
  const std::pair<const MoeNumbers*, MoeKernel> replays[] = {
      {&spread, MoeKernel::decode}, {&crowded, MoeKernel::large}, {&spread, MoeKernel::decode}};
  for (const auto& [numbers, products] : replays) {
    there.send_ids(numbers->ids);
    there.poison_results();
    recording.replay(cuda_stream(*stream));
    EXPECT_EQ(there.products(), products);
    there.fetch();
    EXPECT_EQ(wrong(arrays.out(), expected(*numbers)), "");
  }
}

}  // namespace
}  // namespace ps::test
