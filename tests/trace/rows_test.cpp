#include "trace/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace ps::detail {
namespace {

using Rows = std::vector<std::size_t>;

Rows rows(std::initializer_list<Span> spans) { return assign_rows(std::vector<Span>(spans)); }

// Whether two spans share a time; an empty one occupies its begin.
bool overlap(const Span& a, const Span& b) {
  const Span &first = a.begin_ns <= b.begin_ns ? a : b, &second = &first == &a ? b : a;
  return first.begin_ns == second.begin_ns || second.begin_ns < first.end_ns;
}

TEST(Rows, SpansThatDoNotOverlapShareOneRow) {
  EXPECT_EQ(rows({}), Rows{});
  EXPECT_EQ(rows({{0, 10}, {10, 20}, {25, 30}}), (Rows{0, 0, 0}));
}

TEST(Rows, OverlappingSpansGetRowsOfTheirOwn) {
  EXPECT_EQ(rows({{0, 10}, {5, 15}, {9, 12}}), (Rows{0, 1, 2}));
  EXPECT_EQ(rows({{0, 10}, {2, 4}}), (Rows{0, 1})) << "one inside the other";
  EXPECT_EQ(rows({{0, 10}, {0, 10}}), (Rows{0, 1})) << "two alike";
}

TEST(Rows, ARowIsUsedAgainOnceItIsFreeTheLowestFirst) {
  EXPECT_EQ(rows({{0, 10}, {1, 8}, {2, 9}, {9, 20}, {10, 20}}), (Rows{0, 1, 2, 1, 0}));
}

TEST(Rows, TheOrderOfTheInputDoesNotMatter) { EXPECT_EQ(rows({{5, 15}, {0, 10}}), (Rows{1, 0})); }

TEST(Rows, AnEmptySpanOccupiesItsInstant) {
  EXPECT_EQ(rows({{5, 5}, {5, 5}, {5, 9}, {4, 5}}), (Rows{0, 1, 2, 0}));
  EXPECT_EQ(rows({{5, 5}, {6, 6}}), (Rows{0, 0}));
  EXPECT_EQ(rows({{5, 2}, {4, 9}}), (Rows{1, 0})) << "a reversed span is empty";
}

TEST(Rows, TheFurthestTimesDoNotOverflow) {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                         most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(rows({{least, most}, {most, most}, {most, most}}), (Rows{0, 0, 1}));
}

TEST(Rows, OfRandomSpansNoTwoOverlapInARowAndNoRowIsSuperfluous) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Span> spans(1 + random() % 40);
    for (Span& span : spans) {
      span.begin_ns = static_cast<std::int64_t>(random() % 50);
      span.end_ns = span.begin_ns + static_cast<std::int64_t>(random() % 12);
    }
    const Rows assigned = assign_rows(spans);
    std::size_t most_at_once = 0;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      std::size_t at_once = 0;  // spans that are there when span i begins
      for (std::size_t j = 0; j < spans.size(); ++j) {
        const bool both = overlap(spans[i], spans[j]);
        if (i != j && assigned[i] == assigned[j]) {
          ASSERT_FALSE(both) << "round " << round;
        }
        if (both && spans[j].begin_ns <= spans[i].begin_ns) ++at_once;
      }
      most_at_once = std::max(most_at_once, at_once);
    }
    EXPECT_EQ(*std::ranges::max_element(assigned) + 1, most_at_once) << "round " << round;
  }
}

}  // namespace
}  // namespace ps::detail
