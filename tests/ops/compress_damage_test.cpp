// Damaged data: what decompress() writes for it, with memory of exactly the right size, so that
// AddressSanitizer finds accesses outside of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "ops/compress/format.h"
#include "penstock/base/error.h"
#include "support/bf16_values.h"

namespace ps::test {
namespace {

namespace format = compression;
using format::Form;
using format::Header;
using format::SegmentHeader;
using format::SegmentLayout;

using Damaged = std::vector<std::uint8_t>;

template <class T>
T read_as(const Damaged& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <class T>
void write_to(Damaged& bytes, std::size_t at, const T& value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}
void flip(Damaged& bytes, std::size_t bit) {
  bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] ^ 1U << bit % 8);
}
std::size_t begin_of(const Damaged& bytes, std::size_t segment) {
  return std::size_t{read_as<std::uint32_t>(bytes, sizeof(Header) + 4 * segment)} * format::unit;
}

// Three segments, the last of them not whole.
class DecompressDamaged : public testing::Test {
 protected:
  static constexpr std::size_t count = 2 * format::segment_values + 1300;

  DecompressDamaged() {
    RandomValues random(1);
    values = random.many(Values::normal, count);
    bytes = compressed(values);
  }

  // The segments that come back as they were, as digits; 'N' for one of NaN, '?' for other values.
  std::string segments(const Damaged& damaged) const {
    const Bf16s out = decompressed(damaged, count);
    std::string found;
    for (std::size_t s = 0; s < format::segments_of(count); ++s) {
      const auto first = out.begin() + static_cast<std::ptrdiff_t>(s * format::segment_values);
      const auto last = first + format::values_of(count, s);
      const auto was = values.begin() + (first - out.begin());
      const bool nan = std::all_of(first, last, [](auto v) { return v == format::undecodable; });
      found += nan ? 'N' : std::equal(first, last, was) ? static_cast<char>('0' + s) : '?';
    }
    return found;
  }
  std::string with_header(std::size_t segment, const SegmentHeader& header) const {
    Damaged damaged = bytes;
    write_to(damaged, begin_of(damaged, segment), header);
    return segments(damaged);
  }

  Bf16s values;
  Damaged bytes;
};

TEST_F(DecompressDamaged, NotAtAll) { EXPECT_EQ(segments(bytes), "012"); }

TEST_F(DecompressDamaged, HeaderBits) {
  for (std::size_t bit = 0; bit < 8 * sizeof(Header); ++bit) {
    Damaged damaged = bytes;
    flip(damaged, bit);
    ASSERT_EQ(segments(damaged), "NNN") << "bit " << bit;
  }
}

TEST_F(DecompressDamaged, Truncated) {
  for (std::size_t size = format::segments_begin(count); size < bytes.size(); size += 61) {
    ASSERT_EQ(segments({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}), "NNN");
  }
}

// The header claims that the data is complete.
TEST_F(DecompressDamaged, TruncatedWithAHeaderThatFits) {
  for (std::size_t size = format::segments_begin(count); size < bytes.size(); size += 61) {
    Damaged damaged(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    auto header = read_as<Header>(damaged, 0);
    header.bytes = size;
    header.checksum = format::checksum_of(header);
    write_to(damaged, 0, header);
    std::string expected = "012";
    for (std::size_t s = 0; s < 3; ++s) {
      const std::size_t end = s == 2 ? bytes.size() : begin_of(bytes, s + 1);
      if (end > size) expected[s] = 'N';
    }
    ASSERT_EQ(segments(damaged), expected) << size << " of " << bytes.size() << " bytes";
  }
}

TEST_F(DecompressDamaged, AnotherNumberOfElements) {
  for (const std::size_t other : {count - 1, count + 1, count + 5000, std::size_t{1}}) {
    const Bf16s out = decompressed(bytes, other);
    EXPECT_EQ(std::count(out.begin(), out.end(), format::undecodable), other);
  }
}

TEST_F(DecompressDamaged, Offsets) {
  const auto with = [&](std::uint32_t offset) {
    Damaged damaged = bytes;
    write_to(damaged, sizeof(Header) + 4, offset);
    return segments(damaged);
  };
  EXPECT_EQ(with(0xFFFFFFFF), "0N2");
  EXPECT_EQ(with(static_cast<std::uint32_t>(bytes.size() / format::unit)), "0N2");
  EXPECT_EQ(with(static_cast<std::uint32_t>(bytes.size() / format::unit - 1)), "0N2");
  EXPECT_EQ(with(read_as<std::uint32_t>(bytes, sizeof(Header))), "0?2") << "another segment's";
}

TEST_F(DecompressDamaged, SegmentHeaders) {
  for (std::size_t s = 0; s < 3; ++s) {
    const auto right = read_as<SegmentHeader>(bytes, begin_of(bytes, s));
    std::string expected = "012";
    expected[s] = 'N';
    for (const int form : {2, 3, 255}) {
      SegmentHeader header = right;
      header.form = static_cast<Form>(form);
      EXPECT_EQ(with_header(s, header), expected) << "form " << form;
    }
    for (unsigned k = 0; k < format::coded_lists; ++k) {
      for (const unsigned left :
           {0U, 1U, right.left[k] - 1U, right.left[k] + 1U, 4096U, 4097U, 65535U}) {
        SegmentHeader header = right;
        header.left[k] = static_cast<std::uint16_t>(left);
        EXPECT_EQ(with_header(s, header), expected) << "list " << k + 1 << " of " << left;
      }
    }
    SegmentHeader longest = right;
    for (std::uint16_t& left : longest.left) left = 4096;
    EXPECT_EQ(with_header(s, longest), expected);
  }
  // The last segment has fewer bytes than its values.
  SegmentHeader stored{.form = Form::stored};
  EXPECT_EQ(with_header(2, stored), "01N");
}

// Codes 3 where the header counts fewer, in every list, and in the padding of the last words.
TEST_F(DecompressDamaged, CodesThatLeaveMoreOrLess) {
  const auto header = read_as<SegmentHeader>(bytes, begin_of(bytes, 2));
  const SegmentLayout layout(header, format::values_of(count, 2));
  for (unsigned k = 0; k < format::coded_lists; ++k) {
    for (const unsigned w : {0U, layout.words[k] - 1}) {
      const std::size_t at = begin_of(bytes, 2) + layout.codes[k] + 4 * w;
      for (const std::uint32_t word : {0U, 0xFFFFFFFFU}) {
        if (format::missing_in(word) == format::missing_in(read_as<std::uint32_t>(bytes, at))) {
          continue;
        }
        Damaged damaged = bytes;
        write_to(damaged, at, word);
        EXPECT_EQ(segments(damaged), "01N") << "list " << k << ", word " << w;
      }
    }
  }
}

// Any damage to one segment leaves the others alone.
TEST_F(DecompressDamaged, RandomBitsOfOneSegment) {
  RandomValues random(2);
  const std::size_t begin = begin_of(bytes, 1), end = begin_of(bytes, 2);
  for (int run = 0; run < 400; ++run) {
    Damaged damaged = bytes;
    for (std::uint32_t flips = 1 + random.bits() % 4; flips > 0; --flips) {
      flip(damaged, 8 * begin + random.bits() % (8 * (end - begin)));
    }
    const std::string found = segments(damaged);
    ASSERT_EQ(found[0], '0') << "run " << run;
    ASSERT_EQ(found[2], '2') << "run " << run;
  }
}

// Nothing but bits, with a right header or not.
TEST_F(DecompressDamaged, Noise) {
  RandomValues random(3);
  for (int run = 0; run < 200; ++run) {
    Damaged noise(format::segments_begin(count) + random.bits() % 30000);
    for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random.bits());
    Header header{.elements = count, .bytes = noise.size()};
    header.checksum = format::checksum_of(header);
    if (run % 2 == 0) write_to(noise, 0, header);
    for (std::size_t s = 0; s < 3 && run % 4 == 0; ++s) {  // offsets inside of it
      write_to(noise, sizeof header + 4 * s,
               static_cast<std::uint32_t>(random.bits() % (noise.size() / format::unit)));
    }
    const std::string found = segments(noise);
    if (run % 2 == 1) {
      ASSERT_EQ(found, "NNN") << "run " << run;
    }
  }
}

}  // namespace
}  // namespace ps::test
