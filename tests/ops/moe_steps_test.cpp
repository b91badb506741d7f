// moe() in steps, with experts that arrive one after the other, and with its work divided in other
// ways than between the threads of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "ops/moe/arguments.h"
#include "ops/moe/cpu.h"
#include "penstock/host/device.h"
#include "penstock/ops/moe.h"
#include "support/guarded_memory.h"
#include "support/moe_arrays.h"
#include "support/moe_call.h"

namespace ps::test {
namespace {

using OutBytes = std::vector<std::uint8_t>;

class MoeSteps : public testing::Test {
 protected:
  OutBytes in_one_call(const MoeNumbers& numbers, const MoeStorage& storage = {}) const {
    MoeArrays arrays(numbers, storage);
    return moe_bytes(arrays, stream);
  }

  // Experts in `groups`, one after the other, through as many slots as the largest has.
  OutBytes in_groups(const MoeNumbers& numbers, GateUpLayout layout,
                     const std::vector<std::vector<std::int64_t>>& groups,
                     std::mt19937& random) const {
    std::size_t most = 1;
    for (const auto& group : groups) most = std::max(most, group.size());
    std::vector<std::int32_t> nowhere(static_cast<std::size_t>(numbers.shape.experts), -1);
    MoeArrays arrays(
        numbers,
        {.layout = layout, .slots = nowhere, .slot_count = static_cast<std::int64_t>(most)});
    MoeOptions options = arrays.options();
    GuardedMemory workspace(moe_workspace_bytes(options));
    options.workspace = workspace.view();
    moe_plan(options, stream);
    for (const auto& group : groups) {
      std::vector<std::int64_t> slots(most);
      std::iota(slots.begin(), slots.end(), 0);
      std::shuffle(slots.begin(), slots.end(), random);
      stream.synchronize();  // the slots are free again
      for (std::int64_t e = 0; e < numbers.shape.experts; ++e) arrays.put(e, -1);
      for (std::size_t i = 0; i < group.size(); ++i) arrays.put(group[i], slots[i]);
      moe_experts(options, stream);
    }
    moe_combine(options, stream);
    stream.synchronize();
    EXPECT_TRUE(workspace.surroundings_untouched());
    EXPECT_TRUE(arrays.out().surroundings_untouched());
    return arrays.out().bytes();
  }

  Stream stream{Device::cpu()};
};

TEST_F(MoeSteps, GiveTheBitsOfOneCall) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const MoeNumbers numbers({.tokens = 1 + static_cast<std::int64_t>(random() % 40),
                              .choices = 3,
                              .width = 24,
                              .experts = 7,
                              .type = seed % 2 == 0 ? DType::bf16 : DType::f16},
                             random);
    const GateUpLayout layout =
        random() % 2 == 0 ? GateUpLayout::concatenated : GateUpLayout::interleaved;
    std::vector<std::vector<std::int64_t>> groups(2 + random() % 2);
    for (std::int64_t e = 0; e < 7; ++e) groups[random() % groups.size()].push_back(e);
    EXPECT_EQ(in_groups(numbers, layout, groups, random), in_one_call(numbers, {.layout = layout}))
        << "with seed " << seed;
  }
}

// Which moe_combine() computes.
TEST_F(MoeSteps, GiveTheBitsOfOneCallWithASharedExpert) {
  for (const bool weighted : {false, true}) {
    std::mt19937 random(5);
    const MoeNumbers numbers({.tokens = 25,
                              .choices = 2,
                              .experts = 5,
                              .gate_up_bias = true,
                              .down_bias = true,
                              .shared_width = 40,
                              .shared_weighted = weighted},
                             random);
    EXPECT_EQ(in_groups(numbers, GateUpLayout::interleaved, {{3, 1}, {0}, {4, 2}}, random),
              in_one_call(numbers, {.layout = GateUpLayout::interleaved}));
  }
}

TEST_F(MoeSteps, ExpertsThatNoCallComputesAddNothing) {
  std::mt19937 random(1);
  const MoeNumbers numbers({.tokens = 30, .choices = 3, .experts = 5}, random);
  const MoeStorage partly{.slots = {0, -1, 1, -1, 2}, .slot_count = 3};
  EXPECT_EQ(in_groups(numbers, GateUpLayout::concatenated, {{4}, {0, 2}}, random),
            in_one_call(numbers, partly));
  const OutBytes none = in_groups(numbers, GateUpLayout::concatenated, {}, random);
  EXPECT_EQ(none, in_one_call(numbers, {.slots = {-1, -1, -1, -1, -1}, .slot_count = 1}));
}

// A plan is for any number of rounds over the same ids.
TEST_F(MoeSteps, MayBePlannedAgain) {
  std::mt19937 random(2);
  MoeNumbers numbers({.tokens = 30, .choices = 3, .experts = 5}, random);
  MoeArrays arrays(numbers);
  MoeOptions options = arrays.options();
  GuardedMemory workspace(moe_workspace_bytes(options));
  options.workspace = workspace.view();
  for (int round = 0; round < 2; ++round) {
    moe_plan(options, stream);
    moe_experts(options, stream);
    moe_experts(options, stream);
    moe_combine(options, stream);
    moe_combine(options, stream);
    stream.synchronize();
    EXPECT_EQ(arrays.out().bytes(), in_one_call(numbers));
  }
  moe_plan(options, stream);
  moe_combine(options, stream);
  stream.synchronize();
  for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(arrays.out().bits({0, i}), 0U);
}

using RangeWork = std::function<void(std::size_t begin, std::size_t end)>;

void all_at_once(std::size_t count, std::size_t, const RangeWork& work) {
  if (count > 0) work(0, count);
}
void one_by_one(std::size_t count, std::size_t, const RangeWork& work) {
  for (std::size_t i = 0; i < count; ++i) work(i, i + 1);
}
void from_the_end(std::size_t count, std::size_t, const RangeWork& work) {
  for (std::size_t end = count; end > 0;) {
    const std::size_t begin = end - std::min<std::size_t>(end, 3);
    work(begin, end);
    end = begin;
  }
}

TEST_F(MoeSteps, GiveTheSameBitsHoweverTheyAreDivided) {
  std::mt19937 random(3);
  const MoeNumbers numbers({.tokens = 1500, .choices = 3, .hidden = 72, .width = 40, .experts = 6},
                           random);
  const OutBytes wanted = in_one_call(numbers);
  for (const mixture::Ranges ranges : {all_at_once, one_by_one, from_the_end}) {
    MoeArrays arrays(numbers);
    MoeOptions options = arrays.options();
    GuardedMemory workspace(moe_workspace_bytes(options));
    options.workspace = workspace.view();
    const detail::MoeWork work =
        mixture::checked(options, mixture::Workspace::given, Device::cpu());
    mixture::sort_pairs(work, ranges);
    mixture::compute_experts(work, ranges);
    mixture::add_up(work, ranges);
    EXPECT_EQ(arrays.out().bytes(), wanted);
  }
}

// What the steps leave in the workspace for each other.
TEST_F(MoeSteps, SortPairsByExpert) {
  std::mt19937 random(4);
  MoeNumbers numbers({.tokens = 900, .choices = 3, .hidden = 8, .experts = 6}, random);
  for (std::size_t i = 0; i < numbers.ids.size(); i += 7) numbers.ids[i] = i % 2 == 0 ? 6 : -1;
  MoeArrays arrays(numbers, {.slots = {0, 1, -1, 3, 4, 5}});
  MoeOptions options = arrays.options();
  GuardedMemory workspace(moe_workspace_bytes(options));
  options.workspace = workspace.view();
  const detail::MoeWork work = mixture::checked(options, mixture::Workspace::given, Device::cpu());
  const std::uint32_t* offsets = work.space.expert_offsets(work.memory);
  const std::uint32_t* source = work.space.source_pairs(work.memory);
  const std::int32_t* place = work.space.pair_rows(work.memory);

  moe_plan(options, stream);
  stream.synchronize();
  std::vector<std::int32_t> wanted(numbers.ids.size(), -1);  // of place, in the end
  std::uint32_t row = 0;
  for (std::int64_t expert = 0; expert < 6; ++expert) {
    EXPECT_EQ(offsets[expert], row);
    for (std::size_t pair = 0; pair < numbers.ids.size(); ++pair) {
      if (numbers.ids[pair] != expert) continue;
      ASSERT_EQ(source[row], pair) << "row " << row;
      if (expert != 2) wanted[pair] = static_cast<std::int32_t>(row);
      ++row;
    }
  }
  EXPECT_EQ(offsets[6], row);
  for (std::size_t pair = 0; pair < wanted.size(); ++pair) ASSERT_EQ(place[pair], -1);
  moe_experts(options, stream);
  stream.synchronize();
  for (std::size_t pair = 0; pair < wanted.size(); ++pair) ASSERT_EQ(place[pair], wanted[pair]);
}

}  // namespace
}  // namespace ps::test
