// Page-locked memory that was registered in pieces. CUDA refuses a copy that crosses the border
// between two pieces, so copies are split there.
#pragma once

#include <cstddef>

namespace ps::detail {

// The memory of one arena, for as long as this object lives. Thread-safe.
class PieceBorders {
 public:
  PieceBorders(const std::byte* begin, std::size_t bytes, std::size_t piece);
  ~PieceBorders();
  PieceBorders(const PieceBorders&) = delete;
  PieceBorders& operator=(const PieceBorders&) = delete;

  // How many of the `bytes` at `data` come before the next border.
  static std::size_t before_next(const std::byte* data, std::size_t bytes);

 private:
  const std::byte* begin_;
};

}  // namespace ps::detail
