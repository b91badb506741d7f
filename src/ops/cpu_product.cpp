#include "ops/cpu_product.h"

#include <algorithm>
#include <cstring>

namespace ps::detail {
namespace {

constexpr std::size_t alignment = 64;  // of packed rows

std::byte* aligned(std::byte* memory) {
  return memory + (-reinterpret_cast<std::uintptr_t>(memory)) % alignment;
}

// Reads elements of all columns at one depth together: they are often next to each other.
template <class Element>
void gather(const Columns& columns, std::size_t depth, std::byte* to) {
  constexpr std::size_t tile = 64 / sizeof(Element);  // of depth, written as one cache line
  for (std::size_t begin = 0; begin < depth; begin += tile) {
    const std::size_t end = std::min(depth, begin + tile);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      auto* column = reinterpret_cast<Element*>(to + c * depth * sizeof(Element));
      const auto* from = reinterpret_cast<const Element*>(columns.first[c]);
      for (std::size_t k = begin; k < end; ++k) {
        column[k] = from[static_cast<std::int64_t>(k) * columns.stride];
      }
    }
  }
}

}  // namespace

void ProductBlock::set_rows(RowPointers rows, std::size_t depth) {
  rows_ = rows.size();
  depth_ = depth;
  const std::size_t bytes = kernel_.packed_bytes(rows_, depth_) + alignment;
  if (packed_.size() < bytes) packed_.resize(bytes);
  kernel_.pack(rows, depth, aligned(packed_.data()));
}

void ProductBlock::multiply(const Columns& columns) {
  kernel_.multiply(aligned(packed_.data()), rows_,
                   columns.stride == 1 ? columns.first : gathered(columns), depth_, sums(0),
                   most_columns);
}

RowPointers ProductBlock::gathered(const Columns& columns) {
  columns_.resize(columns.size() * depth_ * element_);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    gathered_[c] = columns_.data() + c * depth_ * element_;
  }
  if (element_ == 2) {
    gather<std::uint16_t>(columns, depth_, columns_.data());
  } else {
    gather<std::uint32_t>(columns, depth_, columns_.data());
  }
  return {gathered_.data(), columns.size()};
}

}  // namespace ps::detail
