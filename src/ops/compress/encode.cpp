// compress(), on all cores. A first pass over the values chooses the common exponents of every
// segment, which also gives the segments' sizes and places; a second pass writes the segments.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "ops/compress/format.h"
#include "ops/compress/segments.h"
#include "ops/compress/work.h"

namespace ps::compression {
namespace {

using Counts = std::array<std::uint16_t, 256>;

// How often each exponent occurs. Neighbouring values have counters of their own: a counter that
// was just written is slow to read.
Counts count_exponents(const std::uint16_t* values, unsigned count) {
  std::array<Counts, 4> counts{};
  unsigned i = 0;
  for (; i + 4 <= count; i += 4) {
    for (unsigned lane = 0; lane < 4; ++lane) ++counts[lane][exponent_of(values[i + lane])];
  }
  for (; i < count; ++i) ++counts[0][exponent_of(values[i])];
  Counts sum{};
  for (unsigned e = 0; e < sum.size(); ++e) {
    sum[e] = static_cast<std::uint16_t>(counts[0][e] + counts[1][e] + counts[2][e] + counts[3][e]);
  }
  return sum;
}

// The header of a segment in its shorter form.
SegmentHeader choose(const std::uint16_t* values, unsigned count) {
  constexpr unsigned commons = coded_lists * 3;
  const Counts counts = count_exponents(values, count);
  std::array<std::uint8_t, 256> present{};  // the exponents, the commonest first
  unsigned number = 0;
  for (unsigned e = 0; e < counts.size(); ++e) {
    if (counts[e] > 0) present[number++] = static_cast<std::uint8_t>(e);
  }
  const unsigned sorted = std::min(number, commons);
  std::partial_sort(present.begin(), present.begin() + sorted, present.begin() + number,
                    [&](std::uint8_t a, std::uint8_t b) {
                      return counts[a] != counts[b] ? counts[a] > counts[b] : a < b;
                    });
  SegmentHeader header;
  unsigned left = count;
  for (unsigned i = 0; i < commons; ++i) {
    if (i < sorted) {
      header.common[i / 3][i % 3] = present[i];
      left -= counts[present[i]];
    }
    if (i % 3 == 2) header.left[i / 3] = static_cast<std::uint16_t>(left);
  }
  if (SegmentLayout(header, count).bytes < stored_bytes(count)) return header;
  return {.form = Form::stored};
}

unsigned bytes_of(const SegmentHeader& header, unsigned values) {
  return header.form == Form::stored ? stored_bytes(values) : SegmentLayout(header, values).bytes;
}

// The codes of one list, and the list of what they leave.
class Coder {
 public:
  explicit Coder(const std::uint8_t (&common)[3]) {
    codes_.fill(3);
    // From the last to the first, as unused common exponents repeat exponent 0.
    for (unsigned code = 3; code-- > 0;) codes_[common[code]] = static_cast<std::uint8_t>(code);
  }

  // The code of an exponent; appended to `left` if it is 3, which has room for one more than that.
  std::uint32_t code(std::uint8_t exponent, std::uint8_t*& left) const {
    const std::uint32_t code = codes_[exponent];
    *left = exponent;
    left += code == 3 ? 1 : 0;
    return code;
  }

 private:
  std::array<std::uint8_t, 256> codes_{};
};

// Codes whole words; what comes after the list's last entry gets code 0.
void encode_list(const SegmentHeader& header, unsigned list, const List& entries, unsigned count,
                 std::byte* to, List& left) {
  const Coder coder(header.common[list]);
  std::uint8_t* end = left.data();
  for (unsigned first = 0; first < count; first += word_codes, to += 4) {
    std::uint32_t word = 0;
    for (unsigned j = 0; j < std::min(word_codes, count - first); ++j) {
      word |= coder.code(entries[first + j], end) << shift_of(j);
    }
    write_word(to, word);
  }
}

// The exponents and remaining bytes of the values themselves, which are whole groups.
void encode_values(const SegmentHeader& header, const SegmentLayout& layout,
                   const std::uint16_t* values, std::byte* to, List& left) {
  const Coder coder(header.common[0]);
  std::uint8_t* end = left.data();
  for (unsigned w = 0; w < layout.words[0]; ++w) {
    const std::uint16_t* const first = values + first_value(w);
    const std::uint16_t* const second = first + group_values / 2;
    std::array<std::uint8_t, word_codes> remaining{};
    for (unsigned j = 0; j < chunk_values; ++j) {
      remaining[j] = remaining_of(first[j]);
      remaining[chunk_values + j] = remaining_of(second[j]);
    }
    std::memcpy(to + layout.remaining + w * word_codes, remaining.data(), word_codes);
    std::uint32_t word = 0;
    for (unsigned j = 0; j < chunk_values; ++j) {
      word |= coder.code(exponent_of(first[j]), end) << shift_of(j);
    }
    for (unsigned j = 0; j < chunk_values; ++j) {
      word |= coder.code(exponent_of(second[j]), end) << shift_of(chunk_values + j);
    }
    write_word(to + layout.codes[0] + 4 * w, word);
  }
}

void encode(const SegmentHeader& header, const std::uint16_t* values, unsigned count,
            std::byte* to) {
  const unsigned bytes = bytes_of(header, count);
  std::memset(to + bytes - unit, 0, unit);  // what comes after the last byte
  std::memcpy(to, &header, sizeof header);
  if (header.form == Form::stored) {
    std::memcpy(to + sizeof header, values, std::size_t{2} * count);
    return;
  }
  const SegmentLayout layout(header, count);
  std::array<std::uint16_t, segment_values> padded;
  if (count % group_values != 0) {
    padded.fill(joined(header.common[0][0], 0));
    std::copy_n(values, count, padded.begin());
    values = padded.data();
  }
  List left[coded_lists];
  encode_values(header, layout, values, to, left[0]);
  for (unsigned k = 1; k < coded_lists; ++k) {
    encode_list(header, k, left[k - 1], header.left[k - 1], to + layout.codes[k], left[k]);
  }
  std::memcpy(to + layout.last_list, left[coded_lists - 1].data(), header.left[coded_lists - 1]);
}

}  // namespace
}  // namespace ps::compression

namespace ps::detail {

std::size_t compress_cpu(const CompressWork& work) {
  using namespace compression;
  std::vector<SegmentHeader> headers(segments_of(work.elements));
  for_segments(work.elements, [&](std::size_t s, unsigned count) {
    headers[s] = choose(work.x + s * segment_values, count);
  });

  const std::uint64_t begin = segments_begin(work.elements);
  std::vector<std::uint32_t> offsets(headers.size());
  std::uint64_t at = begin;
  for (std::size_t s = 0; s < headers.size(); ++s) {
    offsets[s] = static_cast<std::uint32_t>(at / unit);
    at += bytes_of(headers[s], values_of(work.elements, s));
  }
  if (at > work.room) return at;

  Header header{.elements = work.elements, .bytes = at};
  header.checksum = checksum_of(header);
  std::memset(work.out, 0, begin);
  std::memcpy(work.out, &header, sizeof header);
  if (!headers.empty()) {
    std::memcpy(work.out + sizeof header, offsets.data(), headers.size() * sizeof offsets[0]);
  }
  for_segments(work.elements, [&](std::size_t s, unsigned count) {
    encode(headers[s], work.x + s * segment_values, count,
           work.out + std::uint64_t{offsets[s]} * unit);
  });
  return at;
}

}  // namespace ps::detail
