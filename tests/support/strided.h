// Arrays of any strides for tests, embedded in poison: what lies between and around the elements is
// NaN in every floating type, so that reading it shows, and writing it is found.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "penstock/base/view.h"

namespace ps::test {

// How the elements of an array lie.
struct Layout {
  bool plain = true;     // contiguous
  bool expand = false;   // dimensions may have stride 0
  bool negative = true;  // or a negative one
  bool row = false;      // the last one has stride 1
};

class Strided {
 public:
  static constexpr std::uint8_t poison = 0xFF;
  static constexpr std::int64_t margin = 64;  // elements

  Strided() : Strided(DType::u8, {0}) {}
  Strided(DType type, std::vector<std::int64_t> shape)
      : type_(type), shape_(std::move(shape)), strides_(shape_.size()) {
    std::int64_t reach = 1;
    for (std::size_t d = shape_.size(); d-- > 0;) {
      strides_[d] = reach;
      reach *= std::max<std::int64_t>(1, shape_[d]);
    }
    allocate(0);
  }
  Strided(DType type, std::vector<std::int64_t> shape, Layout layout, std::mt19937& random)
      : Strided(type, std::move(shape)) {
    if (!layout.plain) scramble(layout, random);
    allocate(static_cast<std::int64_t>(random() % 5));
  }

  // Of these strides, none of them negative.
  Strided(DType type, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides)
      : type_(type), shape_(std::move(shape)), strides_(std::move(strides)) {
    allocate(0);
  }

  TensorView view(Place place = {}) { return {data(), type_, shape_, strides_, place}; }
  // Of a copy of all bytes, which lies at `copy`.
  TensorView view_in(std::uint8_t* copy, Place place) const {
    return {copy + static_cast<std::size_t>(origin_) * size_of(type_), type_, shape_, strides_,
            place};
  }
  DType type() const { return type_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t size() const {
    return std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>());
  }

  std::uint64_t bits(const std::vector<std::int64_t>& at) const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + place_of(at), size_of(type_));
    return value;
  }
  void set_bits(const std::vector<std::int64_t>& at, std::uint64_t value) {
    std::memcpy(bytes_.data() + place_of(at), &value, size_of(type_));
  }

  // Sets the elements of the last dimension, beginning with `first`, to what next() returns.
  template <class Next>
  void fill_row(const std::vector<std::int64_t>& first, const Next& next) {
    const std::size_t bytes = size_of(type_);
    std::uint8_t* at = bytes_.data() + place_of(first);
    for (std::int64_t i = first.back(); i < shape_.back(); ++i) {
      const std::uint64_t value = next();
      std::memcpy(at, &value, bytes);
      at += strides_.back() * static_cast<std::int64_t>(bytes);
    }
  }

  // Element number i, the last dimension fastest.
  std::vector<std::int64_t> index(std::int64_t i) const {
    std::vector<std::int64_t> at(shape_.size());
    for (std::size_t d = shape_.size(); d-- > 0; i /= shape_[d]) at[d] = i % shape_[d];
    return at;
  }

  bool surroundings_untouched() const {
    std::vector<bool> mine(bytes_.size());
    const bool rows = !shape_.empty() && strides_.back() == 1;
    const std::int64_t each = rows ? std::max<std::int64_t>(1, shape_.back()) : 1;
    const auto bytes = each * static_cast<std::ptrdiff_t>(size_of(type_));
    for (std::int64_t i = 0; i < size(); i += each) {
      const auto first = mine.begin() + static_cast<std::ptrdiff_t>(place_of(index(i)));
      std::fill(first, first + bytes, true);
    }
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (!mine[i] && bytes_[i] != poison) return false;
    }
    return true;
  }
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  std::vector<std::uint8_t>& bytes() { return bytes_; }

 private:
  void scramble(const Layout& layout, std::mt19937& random) {
    std::vector<std::size_t> order(shape_.size());  // from the fastest
    std::iota(order.rbegin(), order.rend(), 0);
    const auto first = order.begin() + (layout.row ? 1 : 0);
    if (first < order.end()) std::shuffle(first, order.end(), random);
    std::int64_t reach = 1;
    for (const std::size_t d : order) {
      const bool row = layout.row && d + 1 == shape_.size();
      if (layout.expand && !row && random() % 6 == 0) {
        strides_[d] = 0;
        continue;
      }
      if (!row) reach += static_cast<std::int64_t>(random() % 3);
      strides_[d] = layout.negative && !row && random() % 4 == 0 ? -reach : reach;
      reach *= std::max<std::int64_t>(1, shape_[d]);
    }
  }

  void allocate(std::int64_t offset) {
    std::int64_t behind = 0, ahead = 1;
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      const std::int64_t reach = std::max<std::int64_t>(0, shape_[d] - 1) * strides_[d];
      (reach < 0 ? behind : ahead) += reach;
    }
    origin_ = margin + offset - behind;
    bytes_.assign(static_cast<std::size_t>((origin_ + ahead + margin) *
                                           static_cast<std::int64_t>(size_of(type_))),
                  poison);
  }

  void* data() { return bytes_.data() + static_cast<std::size_t>(origin_) * size_of(type_); }

  std::size_t place_of(const std::vector<std::int64_t>& at) const {
    std::int64_t i = origin_;
    for (std::size_t d = 0; d < shape_.size(); ++d) i += at[d] * strides_[d];
    return static_cast<std::size_t>(i) * size_of(type_);
  }

  DType type_;
  std::vector<std::int64_t> shape_, strides_;
  std::int64_t origin_ = 0;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace ps::test
