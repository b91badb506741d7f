// Memory for a workspace: aligned, full of NaN, and with bytes around it that nobody may write.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/base/view.h"

namespace ps::test {

class GuardedMemory {
 public:
  static constexpr std::size_t alignment = 256, margin = 1024;
  static constexpr std::uint8_t poison = 0xFF, guard = 0xA5;

  explicit GuardedMemory(std::size_t bytes)
      : memory_(bytes + 2 * margin + alignment, guard), bytes_(bytes) {
    const auto past = reinterpret_cast<std::uintptr_t>(memory_.data() + margin) % alignment;
    begin_ = margin + (alignment - past) % alignment;
    std::fill_n(memory_.begin() + static_cast<std::ptrdiff_t>(begin_), bytes, poison);
  }

  MemoryView view() {
    return {reinterpret_cast<std::byte*>(memory_.data() + begin_), bytes_, Place{}};
  }
  bool surroundings_untouched() const {
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    const auto is_guard = [](std::uint8_t byte) { return byte == guard; };
    return std::all_of(memory_.begin(), begin, is_guard) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(bytes_), memory_.end(), is_guard);
  }

 private:
  std::vector<std::uint8_t> memory_;
  std::size_t begin_ = 0, bytes_ = 0;
};

}  // namespace ps::test
