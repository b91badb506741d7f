// What the results of the attention ladder are compared with; no GPU is needed.
#include "attention/support/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "penstock/base/error.h"

namespace ladder::attention {
namespace {

TEST(AttentionReference, OneKeyIsItsValue) {
  const std::vector<float> q{1, -2, 3}, k{0.5F, 7, -1}, v{4, 5, -6};
  const ReferenceRow row = reference_row(q, k, v, 1.5);
  EXPECT_EQ(row.out, (std::vector<double>{4, 5, -6}));
  EXPECT_EQ(row.sizes, (std::vector<double>{4, 5, 6}));
}

TEST(AttentionReference, EqualScoresGiveTheMean) {
  const std::vector<float> q{1, 1}, k{2, 0, 0, 2, 1, 1, -1, 3}, v{1, 0, 2, 0, 3, 0, -2, 8};
  const ReferenceRow row = reference_row(q, k, v, 0.25);
  EXPECT_DOUBLE_EQ(row.out[0], 1);
  EXPECT_DOUBLE_EQ(row.out[1], 2);
  EXPECT_DOUBLE_EQ(row.sizes[0], 2);
}

TEST(AttentionReference, TwoKeysByHand) {
  // Scores 0 and log(3): probabilities 1/4 and 3/4.
  const std::vector<float> q{1}, k{0, 1}, v{8, -4};
  const ReferenceRow row = reference_row(q, k, v, std::log(3.0));
  EXPECT_NEAR(row.out[0], 8.0 / 4 - 4 * 3.0 / 4, 1e-14);
  EXPECT_NEAR(row.sizes[0], 8.0 / 4 + 4 * 3.0 / 4, 1e-14);
}

TEST(AttentionReference, LargeScoresDoNotOverflow) {
  const std::vector<float> q{1000}, k{1000, 999, -1000}, v{3, 5, 7};
  const ReferenceRow row = reference_row(q, k, v, 1);
  EXPECT_EQ(row.out[0], 3);
  const ReferenceRow negative =
      reference_row(q, std::vector<float>{-1000, -1000}, {v.data(), 2}, 1);
  EXPECT_EQ(negative.out[0], 4);
}

TEST(AttentionReference, ResultsLieBetweenTheValues) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> any(-1, 1);
  for (const std::size_t keys : {1u, 2u, 33u}) {
    std::vector<float> q(16), k(16 * keys), v(16 * keys);
    for (auto* const values : {&q, &k, &v}) {
      for (float& each : *values) each = any(random);
    }
    const ReferenceRow row = reference_row(q, k, v, 0.25);
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_LE(std::abs(row.out[i]), row.sizes[i] * (1 + 1e-12));
      EXPECT_LE(row.sizes[i], 1);
    }
  }
}

TEST(AttentionReference, RowsOfAnotherLengthAreRefused) {
  const std::vector<float> q{1, 2}, two{1, 2}, three{1, 2, 3}, none;
  EXPECT_THROW(reference_row(q, three, three, 1), ps::InvalidArgument);
  EXPECT_THROW(reference_row(q, two, none, 1), ps::InvalidArgument);
  EXPECT_THROW(reference_row(q, none, none, 1), ps::InvalidArgument);
  EXPECT_THROW(reference_row(none, two, two, 1), ps::InvalidArgument);
}

TEST(AttentionReference, ToleranceGrowsWithTheSizeAndTheSpacing) {
  EXPECT_GT(tolerance_of(0, 0, 0x1p-7), 0);
  EXPECT_GT(tolerance_of(0, 1, 0x1p-7), tolerance_of(0, 1, 0x1p-10));
  EXPECT_GT(tolerance_of(-1, 1, 0x1p-7), tolerance_of(0, 1, 0x1p-7));
  // Half the spacing of the result, and of the probabilities.
  EXPECT_NEAR(tolerance_of(1, 1, 0x1p-7), 0x1p-7, 2e-4);
}

}  // namespace
}  // namespace ladder::attention
