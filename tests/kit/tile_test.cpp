// SharedTile and its descriptors against the table that was written from the manual alone.
#include "penstock/kit/tile.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "kit/descriptor_table.h"

namespace ps::kit {
namespace {

using test::Majorness;
using test::Pattern;

constexpr Majorness table(Major major) { return major == Major::k ? Majorness::k : Majorness::mn; }

constexpr Pattern table(Swizzle swizzle) {
  return swizzle == Swizzle::none  ? Pattern::none
         : swizzle == Swizzle::b32 ? Pattern::b32
         : swizzle == Swizzle::b64 ? Pattern::b64
                                   : Pattern::b128;
}

template <class Tile>
void expect_layout() {
  constexpr Majorness major = table(Tile::major);
  constexpr Pattern pattern = table(Tile::swizzle);
  EXPECT_EQ(Tile::bytes, Tile::rows * Tile::columns * Tile::element_bytes);
  EXPECT_EQ(Tile::alignment, atom_alignment(Tile::swizzle));
  unsigned wrong = 0;
  for (unsigned row = 0; row < Tile::rows; ++row) {
    for (unsigned column = 0; column < Tile::columns; ++column) {
      wrong += Tile::offset(row, column) != test::reference_offset(major, pattern,
                                                                   Tile::element_bytes, Tile::rows,
                                                                   Tile::columns, row, column);
    }
  }
  EXPECT_EQ(wrong, 0U) << "of " << Tile::rows * Tile::columns << " elements";
}

template <class Tile>
void expect_descriptor(std::uint64_t bits, unsigned address, unsigned k, unsigned row) {
  constexpr Majorness major = table(Tile::major);
  constexpr Pattern pattern = table(Tile::swizzle);
  const test::DescriptorFields given = test::fields_of(bits);
  const test::DescriptorFields expected = test::reference_descriptor(
      major, pattern, Tile::element_bytes, Tile::rows, Tile::columns, address, k, row);
  EXPECT_EQ(bits & test::unused_bits, 0U);
  EXPECT_EQ(given.start, expected.start);
  EXPECT_EQ(given.stride, expected.stride);
  EXPECT_EQ(given.base_offset, expected.base_offset);
  EXPECT_EQ(given.swizzle, expected.swizzle);
  if (test::leading_counts(major, pattern)) {
    EXPECT_EQ(given.leading, expected.leading);
  }
}

template <class Tile>
void expect_descriptors() {
  constexpr unsigned columns = test::slice_bytes / Tile::element_bytes;
  ASSERT_EQ(Tile::slices, Tile::columns / columns);
  ASSERT_EQ(Tile::slice_columns, columns);
  // The first place in shared memory, one in the middle, the last one that 227 KiB have room for.
  constexpr unsigned last = (227U * 1024 - Tile::bytes) / 1024 * 1024;
  for (const unsigned address : {0U, 64U * 1024, last}) {
    const auto whole = Operand<Tile>::at(address);
    for (unsigned k = 0; k < Tile::slices; ++k) {
      SCOPED_TRACE(k);
      expect_descriptor<Tile>(whole.slice(k).bits, address, k, 0);
      for (unsigned row = 0; row < Tile::rows; row += Tile::row_step) {
        expect_descriptor<Tile>(whole.slice(k).from_row(row).bits, address, k, row);
        EXPECT_EQ(whole.from_row(row).slice(k).bits, whole.slice(k).from_row(row).bits);
      }
    }
  }
}

template <class Tile>
void expect_tile() {
  SCOPED_TRACE(testing::Message() << "rows " << Tile::rows << ", columns " << Tile::columns
                                  << ", element bytes " << Tile::element_bytes << ", span "
                                  << Tile::span_bytes
                                  << (Tile::major == Major::k ? ", K-major" : ", MN-major"));
  expect_layout<Tile>();
  expect_descriptors<Tile>();
}

template <Major major, Swizzle swizzle>
void expect_two_byte_tiles() {
  expect_tile<SharedTile<std::uint16_t, 64, 64, major, swizzle>>();
  expect_tile<SharedTile<std::uint16_t, 128, 64, major, swizzle>>();
  expect_tile<SharedTile<std::uint16_t, 64, 128, major, swizzle>>();
  expect_tile<SharedTile<std::uint16_t, 192, 128, major, swizzle>>();
  expect_tile<SharedTile<std::uint16_t, 256, 192, major, swizzle>>();
}

template <Swizzle swizzle>
void expect_one_byte_tiles() {
  expect_tile<SharedTile<std::uint8_t, 64, 128, Major::k, swizzle>>();
  expect_tile<SharedTile<std::uint8_t, 8, 128, Major::k, swizzle>>();
  expect_tile<SharedTile<std::uint8_t, 128, 256, Major::k, swizzle>>();
  expect_tile<SharedTile<std::uint8_t, 200, 384, Major::k, swizzle>>();
}

TEST(SharedTile, KMajorAgreesWithTheTable) {
  expect_two_byte_tiles<Major::k, Swizzle::none>();
  expect_two_byte_tiles<Major::k, Swizzle::b32>();
  expect_two_byte_tiles<Major::k, Swizzle::b64>();
  expect_two_byte_tiles<Major::k, Swizzle::b128>();
}

TEST(SharedTile, MnMajorAgreesWithTheTable) {
  expect_two_byte_tiles<Major::mn, Swizzle::none>();
  expect_two_byte_tiles<Major::mn, Swizzle::b32>();
  expect_two_byte_tiles<Major::mn, Swizzle::b64>();
  expect_two_byte_tiles<Major::mn, Swizzle::b128>();
}

TEST(SharedTile, OneByteElementsAgreeWithTheTable) {
  expect_one_byte_tiles<Swizzle::none>();
  expect_one_byte_tiles<Swizzle::b32>();
  expect_one_byte_tiles<Swizzle::b64>();
  expect_one_byte_tiles<Swizzle::b128>();
}

// Tiles as small and as narrow as they may be.
TEST(SharedTile, SmallTilesAgreeWithTheTable) {
  expect_tile<SharedTile<std::uint16_t, 8, 16, Major::k, Swizzle::none>>();
  expect_tile<SharedTile<std::uint16_t, 8, 16, Major::k, Swizzle::b32>>();
  expect_tile<SharedTile<std::uint16_t, 24, 32, Major::k, Swizzle::b64>>();
  expect_tile<SharedTile<std::uint16_t, 8, 64, Major::k, Swizzle::b128>>();
  expect_tile<SharedTile<std::uint16_t, 8, 16, Major::mn, Swizzle::none>>();
  expect_tile<SharedTile<std::uint16_t, 16, 16, Major::mn, Swizzle::b32>>();
  expect_tile<SharedTile<std::uint16_t, 96, 48, Major::mn, Swizzle::b64>>();
  expect_tile<SharedTile<std::uint16_t, 64, 16, Major::mn, Swizzle::b128>>();
}

// The hardware finds the elements, by our descriptors, where our offsets say.
template <class Tile>
void expect_walk() {
  constexpr unsigned address = 16 * 1024;
  unsigned wrong = 0;
  for (unsigned k = 0; k < Tile::slices; ++k) {
    const auto fields = test::fields_of(Operand<Tile>::at(address).slice(k).bits);
    for (unsigned row = 0; row < Tile::rows; ++row) {
      for (unsigned c = 0; c < Tile::slice_columns; ++c) {
        wrong += test::walked_address(fields, table(Tile::major), Tile::element_bytes, row, c) !=
                 address + Tile::offset(row, k * Tile::slice_columns + c);
      }
    }
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(SharedTile, DescriptorsLeadToTheElements) {
  expect_walk<SharedTile<std::uint16_t, 128, 128, Major::k, Swizzle::none>>();
  expect_walk<SharedTile<std::uint16_t, 128, 128, Major::k, Swizzle::b32>>();
  expect_walk<SharedTile<std::uint16_t, 128, 128, Major::k, Swizzle::b64>>();
  expect_walk<SharedTile<std::uint16_t, 128, 128, Major::k, Swizzle::b128>>();
  expect_walk<SharedTile<std::uint16_t, 192, 80, Major::mn, Swizzle::none>>();
  expect_walk<SharedTile<std::uint16_t, 192, 80, Major::mn, Swizzle::b32>>();
  expect_walk<SharedTile<std::uint16_t, 192, 80, Major::mn, Swizzle::b64>>();
  expect_walk<SharedTile<std::uint16_t, 192, 80, Major::mn, Swizzle::b128>>();
  expect_walk<SharedTile<std::uint8_t, 64, 256, Major::k, Swizzle::b128>>();
}

// The one that every GEMM uses, at compile time, but for the field that the hardware does not read.
static_assert((Operand<SharedTile<std::uint16_t, 128, 64>>::at(1024).slice(1).bits &
               ~(std::uint64_t{0x3fff} << 16)) ==
              (std::uint64_t{1} << 62 | std::uint64_t{64} << 32 | std::uint64_t{66}));

}  // namespace
}  // namespace ps::kit
