// The free ranges of a span of bytes: best fit, with neighbours merged.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace ps::detail {

struct ByteRange {
  std::size_t offset = 0, bytes = 0;

  std::size_t end() const { return offset + bytes; }
};

class FreeRanges {
 public:
  explicit FreeRanges(std::size_t bytes) {
    if (bytes != 0) ranges_.emplace(0, bytes);
  }

  // Takes the beginning of the smallest range that has `bytes`, of equal ones the first. Always at
  // the beginning, so that ranges of one size stay at multiples of it.
  std::optional<std::size_t> take(std::size_t bytes);
  // Takes these bytes, which must be free.
  void take_at(ByteRange range);
  // Gives these bytes back. Returns the free range that they are part of now.
  ByteRange give(ByteRange range);

  std::size_t largest() const;

 private:
  std::map<std::size_t, std::size_t> ranges_;  // bytes by offset
};

}  // namespace ps::detail
