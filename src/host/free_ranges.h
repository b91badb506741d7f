// The free ranges of a span of bytes: best fit, with neighbours merged.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <utility>

namespace ps::detail {

struct ByteRange {
  std::size_t offset = 0, bytes = 0;

  std::size_t end() const { return offset + bytes; }
};

class FreeRanges {
  using Ranges = std::map<std::size_t, std::size_t>;  // bytes by offset

 public:
  // A copy of the free ranges, to find out what giving others back would leave free.
  class Trial {
   public:
    // As FreeRanges::give(), but takes memory.
    ByteRange give(ByteRange range);

   private:
    friend FreeRanges;
    explicit Trial(Ranges ranges) : ranges_(std::move(ranges)) {}
    Ranges ranges_;
  };

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

  Trial trial() const { return Trial(ranges_); }

  std::size_t largest() const;

 private:
  static bool merge(Ranges& ranges, ByteRange& range) noexcept;

  Ranges ranges_;  // that are free
  Ranges taken_;   // their nodes are those of free ranges later: giving back must not fail
};

}  // namespace ps::detail
