#include <algorithm>
#include <cstring>

#include "fuzz/targets.h"
#include "ops/compress/format.h"
#include "penstock/base/error.h"
#include "support/bf16_values.h"

namespace ps::fuzz {
namespace {

constexpr std::size_t most_elements = 3 * compression::segment_values;

// The data behind a header that fits it: the checksum would keep the fuzzer from going further.
std::vector<std::uint8_t> with_header(std::vector<std::uint8_t> bytes, std::size_t elements) {
  compression::Header header{.elements = elements, .bytes = bytes.size()};
  header.checksum = checksum_of(header);
  if (bytes.size() >= sizeof header) std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

void check_same(const test::Bf16s& a, const test::Bf16s& b) {
  if (a != b) __builtin_trap();
}

}  // namespace

// The first two bytes are a number of elements; the highest bit says whether the rest has a header.
int decompress(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t first = data[0] | data[1] << 8;
  const std::size_t elements = (first & 0x7FFF) % (most_elements + 1);
  std::vector<std::uint8_t> bytes(data + 2, data + size);
  if ((first & 0x8000) == 0) bytes = with_header(std::move(bytes), elements);
  try {
    const test::Bf16s once = test::decompressed(bytes, elements);
    check_same(test::decompressed(bytes, elements), once);
    // Whatever was decoded is compressed and decoded again.
    check_same(test::decompressed(test::compressed(once), elements), once);
  } catch (const InvalidArgument&) {
  }
  try {
    const test::ExactBytes exact(bytes);
    if (compressed_info(exact.view()).bytes > bytes.size()) __builtin_trap();
  } catch (const InvalidArgument&) {
  }
  return 0;
}

}  // namespace ps::fuzz
