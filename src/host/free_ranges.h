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
  // Gives back a range that was taken, as a whole. Takes no memory. Returns the free range that it
  // is part of now.
  ByteRange give(ByteRange range) noexcept;

  std::size_t largest() const;

 private:
  using Ranges = std::map<std::size_t, std::size_t>;  // bytes by offset
  Ranges ranges_;                                     // that are free
  Ranges taken_;  // their nodes are those of free ranges later: giving back must not fail
};

}  // namespace ps::detail
