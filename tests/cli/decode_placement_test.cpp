// Where the keys of the decode ladder lie; no GPU is needed.
#include "decode/support/placement.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "penstock/base/error.h"

namespace ladder::decode {
namespace {

// Every row holds one key, or none and is listed as unused. Returns the keys without a row.
unsigned expect_placed(const Shape& shape) {
  const Placement placed = place(shape);
  std::set<std::int64_t> rows;
  unsigned missing = 0;
  for (unsigned b = 0; b < shape.lengths.size(); ++b) {
    for (unsigned key = 0; key < static_cast<unsigned>(shape.lengths[b]); ++key) {
      const std::int64_t row = placed.row_of(b, key);
      if (row < 0) {
        ++missing;
        continue;
      }
      EXPECT_LT(row, static_cast<std::int64_t>(placed.rows()));
      EXPECT_TRUE(rows.insert(row).second) << "a row for two keys";
    }
  }
  for (const auto& [first, count] : placed.unused) {
    for (std::size_t row = first; row < first + count; ++row) {
      EXPECT_TRUE(rows.insert(static_cast<std::int64_t>(row)).second) << "in use, or listed twice";
    }
  }
  EXPECT_EQ(rows.size(), placed.rows());
  return missing;
}

TEST(DecodePlacement, EveryKeyHasARow) {
  const std::vector<int> lengths{130, 0, 64, 1, 63, 65};
  for (const bool paged : {false, true}) {
    for (const unsigned page_rows : {1U, 16U, 48U, 64U, 200U}) {
      EXPECT_EQ(expect_placed({.lengths = lengths, .paged = paged, .page_rows = page_rows}), 0U);
    }
  }
}

TEST(DecodePlacement, WithoutPagesRowsFollowEachOther) {
  const Placement placed = place({.lengths = {130, 0, 64}, .page_rows = 64});
  EXPECT_EQ(placed.starts, (std::vector<int>{0, 192, 192, 256}));
  EXPECT_EQ(placed.row_of(0, 129), 129);
  EXPECT_EQ(placed.row_of(2, 1), 193);
  EXPECT_TRUE(placed.pages.empty());
}

TEST(DecodePlacement, PagesAreInNoOrder) {
  const Placement placed = place({.lengths = {6400}, .paged = true});
  std::vector<int> ordered(100);
  std::iota(ordered.begin(), ordered.end(), 0);
  ASSERT_EQ(placed.pages.size(), 100U);
  EXPECT_NE(placed.pages, ordered);
}

TEST(DecodePlacement, SomePagesDoNotExist) {
  const Shape shape{.lengths = {128, 128, 128}, .paged = true, .page_rows = 32, .bad_every = 3};
  EXPECT_EQ(expect_placed(shape), 4 * 32U);
  const Placement placed = place(shape);
  const std::set<int> entries(placed.pages.begin(), placed.pages.end());
  EXPECT_TRUE(entries.contains(-1));
  EXPECT_TRUE(entries.contains(static_cast<int>(placed.page_count)));
}

TEST(DecodePlacement, OneLongSequenceHasHalfOfTheSameKeys) {
  for (const unsigned count : {2U, 3U, 16U}) {
    for (const int keys : {1, 512, 16384}) {
      const std::vector<int> lengths = one_long(count, keys);
      ASSERT_EQ(lengths.size(), count);
      const int all = static_cast<int>(count) * keys;
      EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), 0), all);
      EXPECT_EQ(lengths[(count - 1) / 2], all / 2);
      const Shape shape{.lengths = lengths}, same{.lengths = equal_lengths(count, keys)};
      EXPECT_EQ(shape.bytes(), same.bytes());
    }
  }
}

TEST(DecodePlacement, BytesAreKeysAndValuesOfAllHeads) {
  EXPECT_EQ((Shape{.lengths = equal_lengths(16, 16384)}.bytes()), 16.0 * 16384 * 8 * 2 * 256);
}

TEST(DecodePlacement, ShapesThatNoRungComputesAreRefused) {
  EXPECT_THROW(place({.lengths = {}}), ps::InvalidArgument);
  EXPECT_THROW(place({.lengths = {5, -1}}), ps::InvalidArgument);
  EXPECT_THROW(place({.lengths = {5}, .heads_q = 12}), ps::InvalidArgument);
  EXPECT_THROW(place({.lengths = {5}, .heads_q = 34, .heads_k = 2}), ps::InvalidArgument);
  EXPECT_THROW(place({.lengths = {5}, .heads_q = 8, .heads_k = 0}), ps::InvalidArgument);
  EXPECT_THROW(place({.lengths = {5}, .page_rows = 0}), ps::InvalidArgument);
}

}  // namespace
}  // namespace ladder::decode
