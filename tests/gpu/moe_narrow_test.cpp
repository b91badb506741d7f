// moe() with narrow experts on a GPU, whose down-projection has a kernel of its own: the formula
// within its tolerance, and the bits of the ordinary kernel.
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gpu/moe_gpu.h"
#include "penstock/ops/moe.h"
#include "support/moe_arrays.h"

namespace ps::test {
namespace {

class MoeNarrowGpu : public MoeGpu {
 protected:
  std::vector<std::uint8_t> bits(MoeArrays& arrays, MoeKernel kernel) {
    OnGpu there(arrays, gpu, *stream);
    there.options().kernel = kernel;
    moe(there.options(), *stream);
    there.fetch();
    EXPECT_TRUE(arrays.out().surroundings_untouched());
    EXPECT_TRUE(there.surroundings_untouched());
    return bits_of(arrays);
  }

  // That the result is right, and has the bits of `sequential`, which always runs the ordinary
  // kernel.
  void expect_right(const MoeNumbers& numbers, const MoeStorage& storage = {}) {
    MoeArrays narrow(numbers, storage), ordinary(numbers, storage);
    EXPECT_TRUE(bits(narrow, MoeKernel::large) == bits(ordinary, MoeKernel::sequential))
        << "the bits differ";
    EXPECT_EQ(wrong(narrow.out(), expected(numbers, narrow.present())), "");
  }
};

// Experts with every number of rows at which a tile or a consumer's part of it begins or ends; n of
// one to four steps, whole and not; d that ends in the first and in the second half of a block.
TEST_F(MoeNarrowGpu, AnyWidth) {
  const std::vector<int> counts{0, 1, 63, 64, 65, 129, 193, 0, 128, 127, 257, 192, 0};
  std::uint32_t seed = 0;
  for (const std::int64_t width : {8, 64, 72, 128, 136, 200, 256}) {
    for (const std::int64_t hidden : {72, 264, 648}) {
      const DType type = ++seed % 2 == 0 ? DType::bf16 : DType::f16;
      SCOPED_TRACE(testing::Message()
                   << "n " << width << ", d " << hidden << ", type " << static_cast<int>(type));
      expect_right(with_counts(counts, hidden, width, type, seed));
      if (HasFailure()) return;
    }
  }
}

// As many tiles as it takes for walks along all columns, and shorter ones at the end of the table.
TEST_F(MoeNarrowGpu, WholeWalksAndShares) {
  std::vector<int> counts;
  for (int e = 0; e < 600; ++e) counts.push_back(e % 7 == 0 ? 130 : 1);
  expect_right(with_counts(counts, 1032, 8, DType::bf16, 1));
}

TEST_F(MoeNarrowGpu, StridedWeightsInSlots) {
  const std::vector<int> counts{100, 0, 300, 7, 65};
  const MoeNumbers numbers = with_counts(counts, 328, 248, DType::bf16, 2);
  expect_right(numbers, {.slots = {3, 1, -1, 0, 2}, .slot_count = 4, .padding = 8});
  expect_right(numbers, {.layout = GateUpLayout::interleaved, .padding = 16});
}

// Which block takes which item differs from run to run; the bits do not.
TEST_F(MoeNarrowGpu, TheSameBitsEveryTime) {
  std::mt19937 random(3);
  const MoeNumbers numbers(
      {.tokens = 3000, .choices = 4, .hidden = 776, .width = 256, .experts = 11}, random);
  MoeArrays arrays(numbers);
  OnGpu there(arrays, gpu, *stream);
  there.options().kernel = MoeKernel::large;
  const std::vector<std::uint8_t> first = there.run_again();
  for (int repeat = 0; repeat < 1000; ++repeat) {
    ASSERT_EQ(there.run_again(), first) << "repeat " << repeat;
  }
}

// Biases, and columns that are contiguous: the ordinary kernel, whose table is another one.
TEST_F(MoeNarrowGpu, LeavesOtherLayoutsToTheOrdinaryKernel) {
  const std::vector<int> counts{100, 0, 300, 7, 65};
  EXPECT_EQ(run(with_counts(counts, {.hidden = 264, .width = 72, .down_bias = true}, 4), {},
                MoeKernel::large),
            "");
  EXPECT_EQ(
      run(with_counts(counts, 264, 72, DType::bf16, 5), {.down_by_column = true}, MoeKernel::large),
      "");
}

// The up-projection's options do not matter.
TEST_F(MoeNarrowGpu, WithGateUpBiasAndTransposedGateUp) {
  const std::vector<int> counts{100, 0, 300, 7, 65};
  EXPECT_EQ(run(with_counts(counts, {.hidden = 264, .width = 72, .gate_up_bias = true}, 6),
                {.gate_up_by_column = true}, MoeKernel::large),
            "");
}

// A shared expert is narrow on its own account.
TEST_F(MoeNarrowGpu, SharedExpert) {
  const std::vector<int> counts{100, 0, 300, 7, 65};
  for (const auto& [width, shared] : {std::pair{72, 400}, std::pair{400, 72}, std::pair{64, 64}}) {
    SCOPED_TRACE(testing::Message() << "n " << width << ", shared " << shared);
    EXPECT_EQ(run(with_counts(counts, {.hidden = 264, .width = width, .shared_width = shared}, 7),
                  {}, MoeKernel::large),
              "");
  }
}

}  // namespace
}  // namespace ps::test
