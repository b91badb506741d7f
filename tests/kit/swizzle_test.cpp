#include "penstock/kit/swizzle.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace ps::kit {
namespace {

constexpr std::array all = {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128};

// The patterns as the PTX ISA prints them (5.5.7, swizzling modes): lines of 128 bytes, in each
// place the number of the 16-byte chunk that arrives there. They repeat from below.
constexpr unsigned pattern_none[1][8] = {{0, 1, 2, 3, 4, 5, 6, 7}};
constexpr unsigned pattern_b32[2][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}};
constexpr unsigned pattern_b64[4][8] = {{0, 1, 2, 3, 4, 5, 6, 7},
                                        {1, 0, 3, 2, 5, 4, 7, 6},
                                        {2, 3, 0, 1, 6, 7, 4, 5},
                                        {3, 2, 1, 0, 7, 6, 5, 4}};
constexpr unsigned pattern_b128[8][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6},
                                         {2, 3, 0, 1, 6, 7, 4, 5}, {3, 2, 1, 0, 7, 6, 5, 4},
                                         {4, 5, 6, 7, 0, 1, 2, 3}, {5, 4, 7, 6, 1, 0, 3, 2},
                                         {6, 7, 4, 5, 2, 3, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0}};

template <unsigned lines>
void expect_pattern(const unsigned (&pattern)[lines][8], Swizzle swizzle) {
  for (unsigned line = 0; line < 40; ++line) {
    for (unsigned place = 0; place < 8; ++place) {
      const unsigned chunk = pattern[line % lines][place];
      for (unsigned byte = 0; byte < 16; ++byte) {
        EXPECT_EQ(swizzled(line * 128 + chunk * 16 + byte, swizzle), line * 128 + place * 16 + byte)
            << "line " << line << ", chunk " << chunk;
      }
    }
  }
}

TEST(Swizzle, WritesThePrintedPatterns) {
  expect_pattern(pattern_none, Swizzle::none);
  expect_pattern(pattern_b32, Swizzle::b32);
  expect_pattern(pattern_b64, Swizzle::b64);
  expect_pattern(pattern_b128, Swizzle::b128);
}

TEST(Swizzle, SpansAndAlignments) {
  EXPECT_EQ(span(Swizzle::none), 16U);
  EXPECT_EQ(span(Swizzle::b32), 32U);
  EXPECT_EQ(span(Swizzle::b64), 64U);
  EXPECT_EQ(span(Swizzle::b128), 128U);
  EXPECT_EQ(atom_alignment(Swizzle::none), 128U);
  EXPECT_EQ(atom_alignment(Swizzle::b32), 256U);
  EXPECT_EQ(atom_alignment(Swizzle::b64), 512U);
  EXPECT_EQ(atom_alignment(Swizzle::b128), 1024U);
}

TEST(Swizzle, ExchangesInsideASpanAndIsItsOwnInverse) {
  for (const Swizzle swizzle : all) {
    const unsigned atom = atom_alignment(swizzle);
    std::set<unsigned> met;
    for (unsigned offset = 0; offset < 4096; ++offset) {
      const unsigned there = swizzled(offset, swizzle);
      EXPECT_TRUE(met.insert(there).second);
      EXPECT_EQ(there / span(swizzle), offset / span(swizzle));
      EXPECT_EQ(swizzled(there, swizzle), offset);
      EXPECT_EQ(swizzled(offset + atom, swizzle), there + atom);
    }
  }
}

// Eight rows one below the other: what a swizzle is for. 32 banks of 4 bytes, so eight chunks of 16
// bytes are read at once if they are in eight different places of the 128-byte line.
TEST(Swizzle, AColumnOfEightRowsMeetsNoBankTwice) {
  for (const Swizzle swizzle : all) {
    for (unsigned chunk = 0; chunk < span(swizzle) / 16; ++chunk) {
      std::set<unsigned> places;
      for (unsigned row = 0; row < 8; ++row) {
        places.insert(swizzled(row * span(swizzle) + chunk * 16, swizzle) / 16 % 8);
      }
      EXPECT_EQ(places.size(), 8U);
    }
  }
}

static_assert(swizzled(7 * 128 + 16, Swizzle::b128) == 7 * 128 + 6 * 16);

}  // namespace
}  // namespace ps::kit
