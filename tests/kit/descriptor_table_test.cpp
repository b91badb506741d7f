// The table is only worth something if it agrees with itself and with the examples in the manual.
#include "kit/descriptor_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ps::test {
namespace {

constexpr Majorness majors[] = {Majorness::k, Majorness::mn};
constexpr Pattern patterns[] = {Pattern::none, Pattern::b32, Pattern::b64, Pattern::b128};

// Calls use(major, pattern, element_bytes, R, C) for every tile that has whole spans.
template <class Use>
void each_tile(const Use& use) {
  for (const Majorness major : majors) {
    for (const Pattern pattern : patterns) {
      for (const unsigned element : {1U, 2U}) {
        for (const unsigned R : {8U, 64U, 72U, 256U}) {
          for (const unsigned C : {16U, 32U, 96U, 128U}) {
            const unsigned contiguous = (major == Majorness::k ? C : R) * element;
            if (contiguous % row_bytes(pattern) != 0 || C * element % slice_bytes != 0) continue;
            SCOPED_TRACE("major " + std::to_string(static_cast<int>(major)) + ", pattern " +
                         std::to_string(static_cast<int>(pattern)) + ", element of " +
                         std::to_string(element) + " bytes, " + std::to_string(R) + " by " +
                         std::to_string(C));
            use(major, pattern, element, R, C);
          }
        }
      }
    }
  }
}

TEST(DescriptorTable, EveryElementHasItsOwnPlace) {
  each_tile([](Majorness major, Pattern pattern, unsigned element, unsigned R, unsigned C) {
    std::vector<bool> met(R * C);
    unsigned wrong = 0;
    for (unsigned r = 0; r < R; ++r) {
      for (unsigned c = 0; c < C; ++c) {
        const unsigned offset = reference_offset(major, pattern, element, R, C, r, c);
        if (offset % element != 0 || offset / element >= R * C || met[offset / element]) {
          ++wrong;
        } else {
          met[offset / element] = true;
        }
      }
    }
    EXPECT_EQ(wrong, 0U);
  });
}

// The hardware finds every element, by the descriptor, where the copies have put it.
TEST(DescriptorTable, DescriptorsLeadToTheElements) {
  each_tile([](Majorness major, Pattern pattern, unsigned element, unsigned R, unsigned C) {
    if (!has_descriptor(major, element)) return;
    const unsigned columns = slice_bytes / element, base = 3 * 1024;
    for (unsigned k = 0; k < C / columns; ++k) {
      const DescriptorFields fields = reference_descriptor(major, pattern, element, R, C, base, k);
      unsigned wrong = 0;
      for (unsigned r = 0; r < R; ++r) {
        for (unsigned c = 0; c < columns; ++c) {
          wrong += walked_address(fields, major, element, r, c) !=
                   base + reference_offset(major, pattern, element, R, C, r, k * columns + c);
        }
      }
      EXPECT_EQ(wrong, 0U) << "slice " << k;
    }
  });
}

TEST(DescriptorTable, DescriptorsOfLaterRowsLeadToTheElements) {
  each_tile([](Majorness major, Pattern pattern, unsigned element, unsigned R, unsigned C) {
    if (!has_descriptor(major, element)) return;
    const unsigned columns = slice_bytes / element, base = 2048;
    const unsigned step = major == Majorness::k ? 8 : row_bytes(pattern) / element;
    for (unsigned first = 0; first < R; first += step) {
      const unsigned k = C / columns - 1;
      const DescriptorFields fields =
          reference_descriptor(major, pattern, element, R, C, base, k, first);
      unsigned wrong = 0;
      for (unsigned r = first; r < R; ++r) {
        wrong += walked_address(fields, major, element, r - first, columns - 1) !=
                 base + reference_offset(major, pattern, element, R, C, r, C - 1);
      }
      EXPECT_EQ(wrong, 0U) << "rows from " << first;
    }
  });
}

// Distances in the manual's examples. Where it has a choice, they are of its own arrangement, so
// the walk is what is compared: element (r, c) at the offset that the printed layout gives.
TEST(DescriptorTable, WalksTheManualsExamples) {
  // MN-major, bf16, none: ((8,1,2),(8,2)) : ((1,8,64),(8,128)) elements; stored 16 and 8.
  // 32 bytes: ((8,2,2),(8,2)) : ((1,8,128),(16,256)); stored 16 and 32.
  // 64 bytes: ((8,4,2),(8,2)) : ((1,8,256),(32,512)); stored 32 and 64.
  struct Example {
    DescriptorFields fields;
    Pattern pattern;
    unsigned chunks, next_rows, column, next_columns;  // of the printed layout, in elements
  };
  const Example examples[] = {
      {{.leading = 16, .stride = 8, .swizzle = 0}, Pattern::none, 1, 64, 8, 128},
      {{.leading = 16, .stride = 32, .swizzle = 3}, Pattern::b32, 2, 128, 16, 256},
      {{.leading = 32, .stride = 64, .swizzle = 2}, Pattern::b64, 4, 256, 32, 512},
  };
  for (const Example& e : examples) {
    for (unsigned r = 0; r < 16 * e.chunks; ++r) {
      for (unsigned c = 0; c < 16; ++c) {
        const unsigned elements = r % 8 + r / 8 % e.chunks * 8 + r / 8 / e.chunks * e.next_rows +
                                  c % 8 * e.column + c / 8 * e.next_columns;
        EXPECT_EQ(walked_address(e.fields, Majorness::mn, 2, r, c),
                  printed_place(elements * 2, e.pattern));
      }
    }
  }
  // K-major, none, 32-bit elements: ((8,2),(4,4)) : ((4,32),(1,64)); stored 16 and 8. A tile of 16
  // rows in our arrangement has just these distances. (The table's own elements are 1 or 2 bytes.)
  const DescriptorFields k_none =
      reference_descriptor(Majorness::k, Pattern::none, 2, 16, 32, 0, 0);
  EXPECT_EQ(k_none.leading, 16U);
  EXPECT_EQ(k_none.stride, 8U);
  EXPECT_EQ(walked_address(k_none, Majorness::k, 4, 9, 5), (1 * 4 + 1 * 32 + 1 + 64) * 4U);
  // K-major, 32 bytes: the leading distance stored as 1, the other as 16.
  const DescriptorFields k_b32 = reference_descriptor(Majorness::k, Pattern::b32, 2, 16, 32, 0, 0);
  EXPECT_EQ(k_b32.leading, 1U);
  EXPECT_EQ(k_b32.stride, 16U);
}

// The one that every GEMM uses, by hand: 64 columns of bf16 are one span of 128 bytes; an
// instruction takes 32 bytes of it; eight rows are 1024 bytes.
TEST(DescriptorTable, TheUsualTileByHand) {
  for (unsigned k = 0; k < 4; ++k) {
    const DescriptorFields fields =
        reference_descriptor(Majorness::k, Pattern::b128, 2, 128, 64, 0x8000, k);
    EXPECT_EQ(fields.start, 0x800 + 2 * k);
    EXPECT_EQ(fields.stride, 64U);
    EXPECT_EQ(fields.swizzle, 1U);
    EXPECT_EQ(fields.base_offset, 0U);
  }
  // Element (1, 0) is chunk 0 of the second line, and lies in its place 1.
  EXPECT_EQ(reference_offset(Majorness::k, Pattern::b128, 2, 128, 64, 1, 0), 128U + 16U);
  // A wider tile goes on in a second box, behind 128 rows of 128 bytes.
  EXPECT_EQ(reference_offset(Majorness::k, Pattern::b128, 2, 128, 128, 0, 64), 128U * 128U);
}

}  // namespace
}  // namespace ps::test
