// The CPU's decompress(): all cores, each with segments of its own.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "ops/compress/format.h"
#include "ops/compress/segments.h"
#include "ops/compress/work.h"

namespace ps::compression {
namespace {

using detail::DecompressWork;

// Whether each list's codes leave as many entries as the header says.
bool counts_agree(const SegmentHeader& header, const SegmentLayout& layout, const std::byte* from) {
  for (unsigned k = 0; k < coded_lists; ++k) {
    unsigned missing = 0;
    for (unsigned w = 0; w < layout.words[k]; ++w) {
      const std::uint32_t word = read_word(from + layout.codes[k] + 4 * w);
      missing += static_cast<unsigned>(std::popcount(missing_in(word)));
    }
    if (missing != header.left[k]) return false;
  }
  return true;
}

// Turns codes into exponents, with the list of those that the codes leave. Without branches, which
// could not be predicted.
void expand(const std::byte* codes, unsigned words, const std::uint8_t (&common)[3],
            const List& left, List& to) {
  const std::uint32_t table = common[0] | common[1] << 8 | common[2] << 16;
  const std::uint8_t* next = left.data();
  for (unsigned w = 0; w < words; ++w) {
    const std::uint32_t word = read_word(codes + 4 * w);
    for (unsigned j = 0; j < word_codes; ++j) {
      const std::uint32_t code = word >> shift_of(j) & 3;
      const std::uint32_t missing = code & code >> 1;
      to[w * word_codes + j] =
          static_cast<std::uint8_t>(table >> 8 * code | (*next & (0U - missing)));
      next += missing;
    }
  }
}

void join(const std::byte* remaining, const List& exponents, unsigned words, std::uint16_t* out) {
  for (unsigned w = 0; w < words; ++w) {
    std::array<std::uint8_t, word_codes> own{};
    std::memcpy(own.data(), remaining + w * word_codes, word_codes);
    const std::uint8_t* const exponent = exponents.data() + w * word_codes;
    std::uint16_t* const first = out + first_value(w);
    std::uint16_t* const second = first + group_values / 2;
    for (unsigned j = 0; j < chunk_values; ++j) {
      first[j] = joined(exponent[j], own[j]);
      second[j] = joined(exponent[chunk_values + j], own[chunk_values + j]);
    }
  }
}

void decode_coded(const SegmentHeader& header, const SegmentLayout& layout, const std::byte* from,
                  unsigned count, std::uint16_t* out) {
  List lists[2];
  std::memcpy(lists[0].data(), from + layout.last_list, header.left[coded_lists - 1]);
  unsigned filled = 0;
  for (unsigned k = coded_lists; k-- > 0; filled = 1 - filled) {
    expand(from + layout.codes[k], layout.words[k], header.common[k], lists[filled],
           lists[1 - filled]);
  }
  const std::byte* const remaining = from + layout.remaining;
  if (count % group_values == 0) return join(remaining, lists[filled], layout.words[0], out);
  std::array<std::uint16_t, segment_values> padded;
  join(remaining, lists[filled], layout.words[0], padded.data());
  std::copy_n(padded.begin(), count, out);
}

// False if the segment cannot be decoded; nothing is written then.
bool decode(const DecompressWork& work, std::size_t segment, unsigned count, std::uint16_t* out) {
  const std::uint64_t begin =
      std::uint64_t{read_word(work.compressed + sizeof(Header) + 4 * segment)} * unit;
  const std::uint64_t most = begin < work.bytes ? work.bytes - begin : 0;
  SegmentHeader header;
  if (most < sizeof header) return false;
  const std::byte* const from = work.compressed + begin;
  std::memcpy(&header, from, sizeof header);
  if (header.form == Form::stored) {
    if (most < stored_bytes(count)) return false;
    std::memcpy(out, from + sizeof header, std::size_t{2} * count);
    return true;
  }
  if (header.form != Form::coded || !lists_shrink(header)) return false;
  const SegmentLayout layout(header, count);
  if (most < layout.bytes || !counts_agree(header, layout, from)) return false;
  decode_coded(header, layout, from, count, out);
  return true;
}

void run(const DecompressWork& work) {
  Header header;
  std::memcpy(&header, work.compressed, sizeof header);
  const bool fits = header_fits(header, work.elements, work.bytes);
  for_segments(work.elements, [&](std::size_t s, unsigned count) {
    std::uint16_t* const out = work.out + s * segment_values;
    if (!fits || !decode(work, s, count, out)) std::fill_n(out, count, undecodable);
  });
}

}  // namespace
}  // namespace ps::compression

namespace ps::detail {

void decompress_cpu(const DecompressWork& work, const Stream& stream) {
  stream.call([work] { compression::run(work); });
}

}  // namespace ps::detail
