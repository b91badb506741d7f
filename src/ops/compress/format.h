// The format of compressed bf16 values, for the CPU and GPUs alike. All numbers are little-endian.
//
//   Header
//   offsets         one u32 per segment: where it begins, in units of 16 bytes from the header
//   segments        4096 values each, the last one fewer; aligned to 16 bytes
//
// A segment is stored (its header and the values) or coded. The coded form splits each value into
// its exponent and the remaining byte (sign and mantissa), which is kept. The exponents are list 0.
// Each of lists 0, 1 and 2 is written as 2-bit codes: 0 to 2 are the list's three commonest
// exponents, and 3 says that the exponent is the next one in the following list. List 3, with what
// is left, consists of bytes. For normally distributed weights the lists have 4096, 1000, 180 and
// 30 entries.
//
//   SegmentHeader
//   remaining bytes         one per value
//   codes of list 0, 1, 2   16 per word of 32 bits
//   list 3
//
// Nothing is serial: an entry's place in the following list is the number of codes 3 before it.
//
// The values of a segment are in an order in which the stores of a warp are contiguous: word w of a
// group of 32 words holds values 8w to 8w + 7 and 256 + 8w to 256 + 8w + 7 of the group's 512
// values. The last group is padded with values that have the first common exponent.
#pragma once

#include <cstdint>

#include "penstock/kit/config.h"

namespace ps::compression {

inline constexpr unsigned segment_values = 4096;
inline constexpr unsigned group_values = 512;
inline constexpr unsigned group_words = 32;
inline constexpr unsigned word_codes = 16;
inline constexpr unsigned chunk_values = 8;  // contiguous values of a word
inline constexpr unsigned coded_lists = 3;
inline constexpr unsigned unit = 16;  // bytes: alignment, and what offsets count
inline constexpr std::uint16_t undecodable = 0xFFFF;

struct Header {
  std::uint32_t magic = 0x43425350;  // "PSBC"
  std::uint32_t version = 1;
  std::uint32_t segment = segment_values;
  std::uint32_t checksum = 0;  // of the other fields
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;  // of everything, this header included
};
static_assert(sizeof(Header) == 2 * unit);

enum class Form : std::uint8_t { coded = 0, stored = 1 };

struct SegmentHeader {
  std::uint8_t common[coded_lists][3] = {};  // the exponents of codes 0 to 2
  Form form = Form::coded;
  std::uint16_t left[coded_lists] = {};  // entries of the following list
};
static_assert(sizeof(SegmentHeader) == unit);

PENSTOCK_HD constexpr std::uint64_t rounded_up(std::uint64_t bytes) {
  return (bytes + unit - 1) / unit * unit;
}
PENSTOCK_HD constexpr std::uint64_t segments_of(std::uint64_t elements) {
  return (elements + segment_values - 1) / segment_values;
}
PENSTOCK_HD constexpr unsigned values_of(std::uint64_t elements, std::uint64_t segment) {
  const std::uint64_t rest = elements - segment * segment_values;
  return rest < segment_values ? static_cast<unsigned>(rest) : segment_values;
}

// Where the first segment begins.
PENSTOCK_HD constexpr std::uint64_t segments_begin(std::uint64_t elements) {
  return rounded_up(sizeof(Header) + 4 * segments_of(elements));
}

// FNV-1a over words instead of bytes.
PENSTOCK_HD constexpr std::uint32_t checksum_of(const Header& header) {
  const std::uint32_t words[] = {header.magic,
                                 header.version,
                                 header.segment,
                                 static_cast<std::uint32_t>(header.elements),
                                 static_cast<std::uint32_t>(header.elements >> 32),
                                 static_cast<std::uint32_t>(header.bytes),
                                 static_cast<std::uint32_t>(header.bytes >> 32)};
  std::uint32_t sum = 0x811C9DC5;
  for (const std::uint32_t word : words) sum = (sum ^ word) * 0x01000193;
  return sum;
}

PENSTOCK_HD constexpr bool is_header(const Header& header) {
  return header.magic == Header{}.magic && header.version == Header{}.version &&
         header.segment == segment_values && header.checksum == checksum_of(header);
}

// Whether `bytes` bytes with this header can hold that many elements.
PENSTOCK_HD constexpr bool header_fits(const Header& header, std::uint64_t elements,
                                       std::uint64_t bytes) {
  return is_header(header) && header.elements == elements && header.bytes <= bytes;
}

PENSTOCK_HD constexpr unsigned stored_bytes(unsigned values) {
  return static_cast<unsigned>(rounded_up(sizeof(SegmentHeader) + 2 * values));
}

// Where the parts of a coded segment are, in bytes from its header.
struct SegmentLayout {
  unsigned words[coded_lists] = {};  // of codes
  unsigned remaining = sizeof(SegmentHeader);
  unsigned codes[coded_lists] = {};
  unsigned last_list = 0;
  unsigned bytes = 0;

  PENSTOCK_HD constexpr SegmentLayout(const SegmentHeader& header, unsigned values) {
    words[0] = (values + group_values - 1) / group_values * group_words;
    for (unsigned k = 1; k < coded_lists; ++k) {
      words[k] = (header.left[k - 1] + word_codes - 1) / word_codes;
    }
    unsigned at = remaining + words[0] * word_codes;
    for (unsigned k = 0; k < coded_lists; ++k) {
      codes[k] = at;
      at += 4 * words[k];
    }
    last_list = at;
    bytes = static_cast<unsigned>(rounded_up(at + header.left[coded_lists - 1]));
  }
};

// Whether the lists do not grow, so that each fits into the memory of a segment's exponents.
PENSTOCK_HD constexpr bool lists_shrink(const SegmentHeader& header) {
  return header.left[0] <= segment_values && header.left[1] <= header.left[0] &&
         header.left[2] <= header.left[1];
}

// Code j of a word is at bit shift_of(j). Codes 0 to 7 are in the lower halves of the word's
// nibbles, codes 8 to 15 in the upper halves.
PENSTOCK_HD constexpr unsigned shift_of(unsigned j) { return 4 * (j % 8) + 2 * (j / 8); }

// The index in a segment of the first value of word w; the other chunk is half a group further.
PENSTOCK_HD constexpr unsigned first_value(unsigned word) {
  return word / group_words * group_values + word % group_words * chunk_values;
}

PENSTOCK_HD constexpr std::uint8_t exponent_of(std::uint16_t value) {
  return static_cast<std::uint8_t>(value >> 7);
}
PENSTOCK_HD constexpr std::uint8_t remaining_of(std::uint16_t value) {
  return static_cast<std::uint8_t>((value >> 8 & 0x80) | (value & 0x7F));
}
PENSTOCK_HD constexpr std::uint16_t joined(std::uint8_t exponent, std::uint8_t remaining) {
  return static_cast<std::uint16_t>((remaining & 0x80) << 8 | exponent << 7 | (remaining & 0x7F));
}

// One bit per code 3 of a word.
PENSTOCK_HD constexpr std::uint32_t missing_in(std::uint32_t word) {
  return word & word >> 1 & 0x55555555;
}

}  // namespace ps::compression
