#include "penstock/base/view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "penstock/base/error.h"

namespace ps {
namespace {

std::string list(std::span<const std::int64_t> values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

// Elements of a shape; the bytes they take must fit a signed 64-bit offset.
std::int64_t count(std::span<const std::int64_t> shape, DType dtype) {
  std::int64_t elements = 1;
  bool empty = false, overflow = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) detail::throw_invalid("shape", "extents of at least 0", list(shape));
    if (extent == 0) {
      empty = true;
    } else {
      overflow |= __builtin_mul_overflow(elements, extent, &elements);
    }
  }
  std::int64_t bytes = 0;
  overflow |= __builtin_mul_overflow(elements, static_cast<std::int64_t>(size_of(dtype)), &bytes);
  if (overflow && !empty) {
    detail::throw_invalid("shape", "fewer than 2^63 bytes in total",
                          fmt::format("{} of {}", list(shape), name(dtype)));
  }
  return empty ? 0 : elements;
}

}  // namespace

MemoryView MemoryView::sub(std::size_t offset, std::size_t count) const {
  if (offset > bytes || count > bytes - offset) {
    detail::throw_invalid("sub", fmt::format("a range inside {} bytes", bytes),
                          fmt::format("offset {} and {} bytes", offset, count));
  }
  return {data == nullptr ? nullptr : data + offset, count, place};
}

void TensorView::set(void* data, DType dtype, std::span<const std::int64_t> shape, Place place) {
  if (size_of(dtype) == 0) {
    detail::throw_invalid("dtype", "a known element type", std::to_string(static_cast<int>(dtype)));
  }
  if (shape.size() > max_rank) {
    detail::throw_invalid("shape", fmt::format("at most {} dimensions", max_rank), list(shape));
  }
  elements_ = count(shape, dtype);
  if (data == nullptr && elements_ > 0) {
    detail::throw_invalid("data", "a pointer", fmt::format("null with shape {}", list(shape)));
  }
  data_ = data;
  dtype_ = dtype;
  place_ = place;
  rank_ = shape.size();
  for (std::size_t d = 0; d < rank_; ++d) shape_[d] = shape[d];
}

TensorView::TensorView(void* data, DType dtype, std::span<const std::int64_t> shape, Place place) {
  set(data, dtype, shape, place);
  std::int64_t stride = 1;
  for (std::size_t d = rank_; d-- > 0;) {
    strides_[d] = stride;
    // An empty tensor's other extents may be huge; their product means nothing.
    if (elements_ > 0) stride *= shape_[d];
  }
}

TensorView::TensorView(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                       Place place)
    : TensorView(data, dtype, std::span<const std::int64_t>(shape.begin(), shape.size()), place) {}

TensorView::TensorView(void* data, DType dtype, std::span<const std::int64_t> shape,
                       std::span<const std::int64_t> strides, Place place) {
  set(data, dtype, shape, place);
  if (strides.size() != shape.size()) {
    detail::throw_invalid("strides", fmt::format("{} values, one per dimension", shape.size()),
                          list(strides));
  }
  // The farthest element either way must be reachable with a signed 64-bit byte offset.
  std::int64_t ahead = 0, behind = 0;
  bool overflow = false;
  for (std::size_t d = 0; d < rank_; ++d) {
    strides_[d] = strides[d];
    if (elements_ == 0) continue;
    std::int64_t reach = 0;
    overflow |= __builtin_mul_overflow(shape[d] - 1, strides[d], &reach);
    std::int64_t& side = reach < 0 ? behind : ahead;
    overflow |= __builtin_add_overflow(side, reach, &side);
  }
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  overflow |= __builtin_mul_overflow(ahead, size, &ahead);
  overflow |= __builtin_mul_overflow(behind, size, &behind);
  if (overflow) {
    detail::throw_invalid("strides", "offsets below 2^63 bytes",
                          fmt::format("{} with shape {}", list(strides), list(shape)));
  }
}

std::int64_t TensorView::extent(std::size_t dimension) const {
  if (dimension >= rank_) {
    detail::throw_invalid("dimension", fmt::format("below the rank {}", rank_),
                          std::to_string(dimension));
  }
  return shape_[dimension];
}

bool TensorView::is_contiguous() const {
  std::int64_t stride = 1;
  for (std::size_t d = rank_; d-- > 0 && elements_ > 0;) {
    if (shape_[d] != 1 && strides_[d] != stride) return false;
    stride *= shape_[d];
  }
  return true;
}

MemoryView TensorView::memory() const {
  if (!is_contiguous()) {
    detail::throw_invalid("tensor", "a contiguous one",
                          fmt::format("{} with strides {}", describe(), list(strides())));
  }
  return {static_cast<std::byte*>(data_), bytes(), place_};
}

std::string TensorView::describe() const {
  return fmt::format("{}{} on {}", name(dtype_), list(shape()), name(place_));
}

}  // namespace ps
