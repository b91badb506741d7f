// What moe() computes on the CPU.
#include "penstock/ops/moe.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/device.h"
#include "support/guarded_memory.h"
#include "support/moe_arrays.h"
#include "support/moe_call.h"
#include "support/sanitized.h"

namespace ps::test {
namespace {

class Moe : public testing::Test {
 protected:
  // "" if the numbers, stored in one way, give what they should.
  std::string wrong_result(const MoeNumbers& numbers, const MoeStorage& storage = {}) const {
    MoeArrays arrays(numbers, storage);
    moe_bytes(arrays, stream);
    return wrong(arrays.out(), expected(numbers, arrays.present()));
  }
  std::string wrong_result(const MoeShape& shape) const {
    std::mt19937 random(1);
    return wrong_result(MoeNumbers(shape, random));
  }

  Stream stream{Device::cpu()};
};

TEST_F(Moe, AgreesWithTheFormula) {
  for (std::uint32_t seed = 1; seed <= random_cases(300); ++seed) {
    RandomMoe call(seed, true);
    moe_bytes(call.arrays(), stream);
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

TEST_F(Moe, ForEveryNumberOfChoices) {
  for (std::int64_t choices = 1; choices <= 16; ++choices) {
    EXPECT_EQ(wrong_result({.tokens = 9, .choices = choices, .experts = 16}), "") << choices;
  }
}

// Around the sizes of blocks.
TEST_F(Moe, ForSizesAroundThoseOfBlocks) {
  for (const std::int64_t size : {8, 24, 32, 40, 64, 72, 120, 128, 136, 264}) {
    EXPECT_EQ(wrong_result({.hidden = size}), "") << size;
    EXPECT_EQ(wrong_result({.width = size}), "") << size;
  }
  for (const std::int64_t tokens : {0, 1, 3, 4, 5, 31, 32, 33, 63, 64, 65, 97}) {
    EXPECT_EQ(wrong_result({.tokens = tokens, .choices = 1, .experts = 1}), "") << tokens;
  }
  for (const std::int64_t tokens : {511, 512, 513, 1100}) {
    EXPECT_EQ(wrong_result({.tokens = tokens, .hidden = 8, .experts = 40}), "") << tokens;
  }
  EXPECT_EQ(wrong_result({.hidden = 1032}), "") << "more than a block of the sum over k";
}

TEST_F(Moe, OfMorePairsThanTheSmallestBlocksHold) {
  EXPECT_EQ(wrong_result({.tokens = 9000, .choices = 16, .hidden = 8, .experts = 1024}), "");
}

TEST_F(Moe, WithAllTokensOnOneExpert) {
  std::mt19937 random(2);
  MoeNumbers numbers({.tokens = 50, .experts = 7}, random);
  for (std::int64_t& id : numbers.ids) id = 3;
  EXPECT_EQ(wrong_result(numbers), "");
}

TEST_F(Moe, AddsAnExpertThatIsNamedTwiceTwice) {
  std::mt19937 random(3);
  MoeNumbers numbers({.tokens = 6, .choices = 3}, random);
  for (std::size_t t = 0; t < 6; ++t) numbers.ids[3 * t + 2] = numbers.ids[3 * t];
  EXPECT_EQ(wrong_result(numbers), "");
}

TEST_F(Moe, SkipsIdsOfNoExpert) {
  std::mt19937 random(4);
  for (const DType type : {DType::i32, DType::i64}) {
    MoeNumbers numbers({.tokens = 6, .choices = 3, .id_type = type}, random);
    const std::int64_t low = type == DType::i32 ? -2147483648LL : INT64_MIN;
    const std::int64_t high = type == DType::i32 ? 2147483647 : (std::int64_t{1} << 32) + 1;
    numbers.ids = {4, 1,  2,     // a sentinel, as route() writes it
                   3, 99, 0,     //
                   1, 0,  high,  //
                   0, -1, 2,     //
                   3, 3,  low,   //
                   4, -5, high};
    MoeArrays arrays(numbers);
    moe_bytes(arrays, stream);
    EXPECT_EQ(wrong(arrays.out(), expected(numbers)), "");
    for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(arrays.out().bits({5, i}), 0U) << "no expert";
  }
}

TEST_F(Moe, TakesRowsOfAnyStrides) {
  std::mt19937 random(5);
  const MoeNumbers numbers({.tokens = 9}, random);
  for (const std::int64_t padding : {1, 3, 8, 50}) {
    EXPECT_EQ(wrong_result(numbers, {.padding = padding}), "") << padding;
  }
}

TEST_F(Moe, GivesTheSameBitsForBothLayoutsAndAnySlots) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    std::mt19937 random(6);
    const MoeNumbers numbers({.tokens = 20, .choices = 3, .width = 40, .experts = 5, .type = type},
                             random);
    MoeArrays plain(numbers);
    const auto wanted = moe_bytes(plain, stream);
    for (const GateUpLayout layout : {GateUpLayout::concatenated, GateUpLayout::interleaved}) {
      MoeArrays same(numbers, {.layout = layout});
      EXPECT_EQ(moe_bytes(same, stream), wanted);
      MoeArrays slotted(numbers, {.layout = layout, .slots = {6, 2, 0, 3, 5}, .slot_count = 8});
      EXPECT_EQ(moe_bytes(slotted, stream), wanted);
    }
  }
}

TEST_F(Moe, TakesNothingFromExpertsThatAreNotThere) {
  std::mt19937 random(7);
  const MoeNumbers numbers({.tokens = 20, .choices = 3, .experts = 5}, random);
  EXPECT_EQ(wrong_result(numbers, {.slots = {-1, 0, 3, 2, 1000}, .slot_count = 3}), "");
  EXPECT_EQ(wrong_result(numbers, {.slots = {-1, -1, -1, 9, 9}, .slot_count = 1}), "");
}

// A NaN stays in its token, and so does what the other tokens are.
TEST_F(Moe, KeepsTokensApart) {
  std::mt19937 random(8);
  MoeNumbers numbers({.tokens = 40, .choices = 2, .width = 24, .experts = 3}, random);
  MoeArrays clean(numbers);
  const auto wanted = moe_bytes(clean, stream);
  numbers.x[7 * 16 + 5] = NAN;
  numbers.weights[2 * 11] = INFINITY;
  MoeArrays spoilt(numbers);
  moe_bytes(spoilt, stream);
  for (std::int64_t t = 0; t < 40; ++t) {
    for (std::int64_t i = 0; i < 16; ++i) {
      if (t == 7 || t == 11) {
        const auto bits = static_cast<std::uint32_t>(spoilt.out().bits({t, i}));
        EXPECT_FALSE(std::isfinite(decoded(bits, DType::bf16))) << t;
      } else {
        EXPECT_EQ(spoilt.out().bits({t, i}), clean.out().bits({t, i})) << t;
      }
    }
  }
}

TEST_F(Moe, GivesATokenTheSameBitsInAnyBatch) {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    std::mt19937 random(seed);
    const MoeNumbers all({.tokens = 70, .choices = 3, .hidden = 136, .width = 40, .experts = 4},
                         random);
    MoeArrays together(all);
    moe_bytes(together, stream);
    const auto first = static_cast<std::int64_t>(random() % 70);
    const auto count = 1 + static_cast<std::int64_t>(random() % (70 - first));
    MoeNumbers some = all;
    some.shape.tokens = count;
    some.x.assign(all.x.begin() + first * 136, all.x.begin() + (first + count) * 136);
    some.ids.assign(all.ids.begin() + first * 3, all.ids.begin() + (first + count) * 3);
    some.weights.assign(all.weights.begin() + first * 3, all.weights.begin() + (first + count) * 3);
    MoeArrays apart(some);
    MoeOptions options = apart.options();
    const Pool pool(Device::cpu());
    options.pool = &pool;
    options.batch_invariant = true;
    moe(options, stream);
    stream.synchronize();
    for (std::int64_t t = 0; t < count; ++t) {
      for (std::int64_t i = 0; i < 136; ++i) {
        ASSERT_EQ(apart.out().bits({t, i}), together.out().bits({first + t, i}))
            << "token " << first + t << " with seed " << seed;
      }
    }
  }
}

// While other calls keep the threads busy, too.
TEST_F(Moe, GivesTheSameBitsEveryTime) {
  std::mt19937 random(9);
  const MoeNumbers numbers({.tokens = 150, .choices = 4, .hidden = 72, .width = 72, .experts = 9},
                           random);
  MoeArrays once(numbers);
  const auto wanted = moe_bytes(once, stream);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      const Stream own(Device::cpu());
      const Pool pool(Device::cpu());
      MoeArrays again(numbers);
      MoeOptions options = again.options();
      options.pool = &pool;
      for (int round = 0; round < 5; ++round) {
        moe(options, own);
        own.synchronize();
        EXPECT_EQ(again.out().bytes(), wanted);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_F(Moe, AllocatesFromThePoolAndGivesBack) {
  std::mt19937 random(10);
  const MoeNumbers numbers({.tokens = 20}, random);
  MoeArrays arrays(numbers);
  MoeOptions options = arrays.options();
  const Pool pool(Device::cpu());
  options.pool = &pool;
  moe(options, stream);
  stream.synchronize();
  EXPECT_EQ(wrong(arrays.out(), expected(numbers)), "");
  EXPECT_EQ(pool.statistics().allocations, 1U);
  EXPECT_EQ(pool.statistics().in_use, 0U);
  GuardedMemory workspace(moe_workspace_bytes(options));
  options.workspace = workspace.view();
  moe(options, stream);
  stream.synchronize();
  EXPECT_EQ(pool.statistics().allocations, 1U) << "the workspace is used";
}

TEST_F(Moe, DoesNothingForNoTokens) {
  std::mt19937 random(11);
  const MoeNumbers numbers({.tokens = 0}, random);
  MoeArrays arrays(numbers);
  MoeOptions options = arrays.options();
  const Pool pool(Device::cpu());
  options.pool = &pool;
  options.check = true;
  moe(options, stream);
  stream.synchronize();
  EXPECT_EQ(pool.statistics().allocations, 0U);
  EXPECT_TRUE(arrays.out().surroundings_untouched());
}

}  // namespace
}  // namespace ps::test
