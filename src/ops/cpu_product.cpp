#include "ops/cpu_product.h"

#include "ops/product/gather.h"

namespace ps::detail {
namespace {

constexpr std::size_t alignment = 64;  // of packed rows

std::byte* aligned(std::byte* memory) {
  return memory + (-reinterpret_cast<std::uintptr_t>(memory)) % alignment;
}

}  // namespace

void ProductBlock::set_rows(RowPointers rows, std::size_t depth) {
  rows_ = rows.size();
  depth_ = depth;
  const std::size_t bytes = kernel_.packed_bytes(rows_, depth_) + alignment;
  if (packed_.size() < bytes) packed_.resize(bytes);
  kernel_.pack(rows, depth, aligned(packed_.data()));
  if (sum_rows_ >= rows_) return;
  sum_rows_ = rows_;
  sums_ = std::make_unique_for_overwrite<float[]>(rows_ * most_columns);
}

void ProductBlock::multiply(const Columns& columns) {
  kernel_.multiply(aligned(packed_.data()), rows_,
                   columns.stride == 1 ? columns.first : gathered(columns), depth_, sums(0),
                   most_columns);
}

RowPointers ProductBlock::gathered(const Columns& columns) {
  // One cache line more than needed: columns whose distance is a power of two would share cache
  // sets.
  const std::size_t distance = depth_ + alignment / element_;
  columns_.resize(columns.size() * distance * element_);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    gathered_[c] = columns_.data() + c * distance * element_;
  }
  if (element_ == sizeof(std::uint16_t)) {
    gather_columns(columns.first, columns.stride, depth_,
                   reinterpret_cast<std::uint16_t*>(columns_.data()), distance);
  } else {
    gather_columns(columns.first, columns.stride, depth_,
                   reinterpret_cast<std::uint32_t*>(columns_.data()), distance);
  }
  return {gathered_.data(), columns.size()};
}

}  // namespace ps::detail
