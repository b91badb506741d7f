// How matrices lie in shared memory for wgmma, written down a second time and slowly, from the PTX
// ISA alone: "Swizzling Modes" of tensors (5.5.7), and "Shared Memory Matrix Layout", "Strides",
// "Canonical Layouts" and "Matrix Descriptor Format" of wgmma. It shares nothing with kit/tile.h.
//
// A tile has R rows (along M or N) and C columns (along K). Its contiguous dimension (K when
// K-major, rows when MN-major) is cut into boxes one span wide, each of which a tensor copy writes
// line by line; the boxes follow one another. Without a swizzle the span is 16 bytes, so that eight
// lines are a core matrix of 128 bytes, and what follows it is its neighbour across the contiguous
// dimension: the next 8 rows when K-major, the next 8 columns when MN-major.
#pragma once

#include <cstdint>
#include <stdexcept>

namespace ps::test {

enum class Majorness { k, mn };
enum class Pattern { none, b32, b64, b128 };

// What one instruction takes of K: 16 elements of 2 bytes or 32 of 1 byte.
inline constexpr unsigned slice_bytes = 32;

inline unsigned row_bytes(Pattern pattern) {
  switch (pattern) {
    case Pattern::none:
      return 16;
    case Pattern::b32:
      return 32;
    case Pattern::b64:
      return 64;
    case Pattern::b128:
      return 128;
  }
  throw std::logic_error("no such pattern");
}

// Where a tensor copy puts the byte that would be at `offset`: looked up in the printed patterns,
// lines of 128 bytes with the chunk that arrives in each place.
inline unsigned printed_place(unsigned offset, Pattern pattern) {
  static constexpr unsigned chunks[8][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6},
                                            {2, 3, 0, 1, 6, 7, 4, 5}, {3, 2, 1, 0, 7, 6, 5, 4},
                                            {4, 5, 6, 7, 0, 1, 2, 3}, {5, 4, 7, 6, 1, 0, 3, 2},
                                            {6, 7, 4, 5, 2, 3, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0}};
  // The narrower patterns are the first lines of the widest, again and again.
  const unsigned lines = row_bytes(pattern) / 16;
  const unsigned line = offset / 128;
  const unsigned chunk = offset / 16 % 8;
  for (unsigned place = 0; place < 8; ++place) {
    if (chunks[line % lines][place] == chunk) return line * 128 + place * 16 + offset % 16;
  }
  throw std::logic_error("every line holds every chunk");
}

// Where element (r, c) of the tile lies, in bytes.
inline unsigned reference_offset(Majorness major, Pattern pattern, unsigned element_bytes,
                                 unsigned R, unsigned C, unsigned r, unsigned c) {
  const unsigned row = row_bytes(pattern);
  const unsigned along = (major == Majorness::k ? c : r) * element_bytes;  // contiguous, in bytes
  const unsigned across = major == Majorness::k ? r : c;
  const unsigned lines = major == Majorness::k ? R : C;  // of a box
  unsigned offset = 0;
  for (unsigned box = 0; box < along / row; ++box) offset += lines * row;
  for (unsigned line = 0; line < across; ++line) offset += row;
  return printed_place(offset + along % row, pattern);
}

// A descriptor's fields, as they are stored: addresses and distances in units of 16 bytes.
struct DescriptorFields {
  unsigned start = 0;        // bits 0 to 13
  unsigned leading = 0;      // bits 16 to 29, "leading dimension byte offset"
  unsigned stride = 0;       // bits 32 to 45, "stride dimension byte offset"
  unsigned base_offset = 0;  // bits 49 to 51
  unsigned swizzle = 0;      // bits 62 and 63
};

inline DescriptorFields fields_of(std::uint64_t bits) {
  return {static_cast<unsigned>(bits & 0x3fff), static_cast<unsigned>(bits >> 16 & 0x3fff),
          static_cast<unsigned>(bits >> 32 & 0x3fff), static_cast<unsigned>(bits >> 49 & 7),
          static_cast<unsigned>(bits >> 62)};
}

// Bits that are in no field and stay 0.
inline constexpr std::uint64_t unused_bits =
    ~(std::uint64_t{0x3fff} | std::uint64_t{0x3fff} << 16 | std::uint64_t{0x3fff} << 32 |
      std::uint64_t{7} << 49 | std::uint64_t{3} << 62);

// A swizzled K-major operand is one row of a span wide at most; the hardware never goes on to
// another along K, takes the leading distance as 1 and does not look at the field.
inline bool leading_counts(Majorness major, Pattern pattern) {
  return major == Majorness::mn || pattern == Pattern::none;
}

// Elements of 1 byte are K-major only.
inline bool has_descriptor(Majorness major, unsigned element_bytes) {
  return element_bytes == 2 || major == Majorness::k;
}

// The descriptor of the k-th instruction's part of a tile that begins at shared address `base` (a
// multiple of 8 spans), for rows from `first_row` on.
inline DescriptorFields reference_descriptor(Majorness major, Pattern pattern,
                                             unsigned element_bytes, unsigned R, unsigned C,
                                             unsigned base, unsigned k, unsigned first_row = 0) {
  const unsigned row = row_bytes(pattern);
  const unsigned columns = slice_bytes / element_bytes;
  const auto stored = [](unsigned value) { return (value & 0x3ffff) >> 4; };
  DescriptorFields fields;
  // The part begins where its first element lies: in the first line of a pattern, in which nothing
  // is exchanged. The pattern itself begins on its boundary wherever the part does, so that the
  // base offset is 0 always.
  fields.start =
      stored(base + reference_offset(major, pattern, element_bytes, R, C, first_row, k * columns));
  fields.base_offset = 0;
  fields.swizzle = pattern == Pattern::none   ? 0
                   : pattern == Pattern::b128 ? 1
                   : pattern == Pattern::b64  ? 2
                                              : 3;
  if (major == Majorness::k && pattern == Pattern::none) {
    // Leading: from the first 16 bytes of K to the second. Stride: from 8 rows to the next 8.
    fields.leading = stored(R * 16);
    fields.stride = stored(8 * 16);
  } else if (major == Majorness::k) {
    fields.leading = 1;
    fields.stride = stored(8 * row);
  } else if (pattern == Pattern::none) {
    // Leading: from 8 columns (of K) to the next 8. Stride: from 16 bytes of rows to the next 16.
    fields.leading = stored(8 * 16);
    fields.stride = stored(C * 16);
  } else {
    // Leading: from one span of rows to the next. Stride: from 8 columns to the next 8.
    fields.leading = stored(C * row);
    fields.stride = stored(8 * row);
  }
  return fields;
}

// What the hardware makes of a descriptor: the shared address of element (r, c) of the operand,
// with c inside one instruction's part. The canonical layouts, in bytes, with a chunk of 16 as
// unit:
//
//   K-major   none       ((8, m), (T, 2)) : ((16, SBO), (element, LBO))
//             swizzled   ((8, m), (T, 2)) : ((span, SBO), (element, 16))
//   MN-major  none       ((T, 1, m), (8, k)) : ((element, 16, SBO), (16, LBO))
//             swizzled   ((T, span / 16, m), (8, k)) : ((element, 16, LBO), (span, SBO))
inline unsigned walked_address(const DescriptorFields& fields, Majorness major,
                               unsigned element_bytes, unsigned r, unsigned c) {
  static constexpr Pattern patterns[] = {Pattern::none, Pattern::b128, Pattern::b64, Pattern::b32};
  const Pattern pattern = patterns[fields.swizzle];
  const bool plain = pattern == Pattern::none;
  const unsigned row = row_bytes(pattern), leading = fields.leading * 16,
                 stride = fields.stride * 16;
  unsigned offset = 0;
  if (major == Majorness::k) {
    const unsigned bytes = c * element_bytes;
    offset = r % 8 * row + r / 8 * stride + bytes % 16 + bytes / 16 * (plain ? leading : 16);
  } else if (plain) {
    const unsigned bytes = r * element_bytes;
    offset = bytes % 16 + bytes / 16 * stride + c % 8 * 16 + c / 8 * leading;
  } else {
    const unsigned bytes = r * element_bytes;
    offset = bytes % row + bytes / row * leading + c % 8 * row + c / 8 * stride;
  }
  return printed_place(fields.start * 16 + offset, pattern);
}

}  // namespace ps::test
