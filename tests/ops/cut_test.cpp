#include "penstock/ops/transform/cut.h"

#include <gtest/gtest.h>

#include <random>

namespace ps::elementwise {
namespace {

TEST(Cut, LeadsEveryOperandToItsBoundary) {
  std::mt19937 random(20261115);
  const auto below = [&](unsigned limit) {
    return std::uniform_int_distribution(0U, limit - 1)(random);
  };
  int found = 0;
  for (int round = 0; round < 20'000; ++round) {
    // Three operands of 1 to 8 bytes an element, a vector of the same number of elements in each.
    const unsigned width = 1U << below(5);
    Operand operands[3];
    for (Operand& each : operands) {
      each.element = 1U << below(4);
      each.boundary = std::min(16U, width * each.element);
      each.address = 4096 + std::uintptr_t{below(64)} * each.element;
    }
    const std::size_t elements = below(100);
    const auto cut = cut_at_boundaries({operands[0], operands[1], operands[2]}, elements, width);
    const auto suits = [&](std::size_t head) {
      for (const Operand& each : operands) {
        if ((each.address + head * each.element) % each.boundary != 0) return false;
      }
      return true;
    };
    bool possible = false;
    for (std::size_t head = 0; head < 64; ++head) possible = possible || suits(head);
    ASSERT_EQ(cut.has_value(), possible);
    if (!cut) continue;
    ++found;
    EXPECT_EQ(cut->body + cut->ragged, elements);
    EXPECT_EQ(cut->body % width, 0U);
    EXPECT_LE(cut->head, elements);
    EXPECT_LT(cut->ragged, 32U);
    if (cut->body > 0) {
      EXPECT_TRUE(suits(cut->head));
      for (unsigned earlier = 0; earlier < cut->head; ++earlier) EXPECT_FALSE(suits(earlier));
    }
  }
  EXPECT_GT(found, 1000);
}

TEST(Cut, SmallerThanItsHead) {
  const auto cut = cut_at_boundaries({{4, 4, 16}}, 2, 4);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->body, 0U);
  EXPECT_EQ(cut->head, 2U);
  EXPECT_EQ(cut->ragged, 2U);
}

TEST(Cut, NoneForAddressesThatNeverAgree) {
  EXPECT_FALSE(cut_at_boundaries({{0, 4, 16}, {4, 4, 16}}, 100, 4));
  EXPECT_FALSE(cut_at_boundaries({{0, 2, 16}, {2, 2, 16}}, 100, 8));
  EXPECT_TRUE(cut_at_boundaries({{4, 4, 16}, {2, 2, 8}}, 100, 4));  // 3 elements before both
}

}  // namespace
}  // namespace ps::elementwise
