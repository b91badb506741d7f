// Copies of columns whose elements are not next to each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/product/kernel.h"

namespace ps::detail {

// Squares of elements that are transposed in vectors of 16 bytes.
template <class Element>
class Square {
 public:
  static constexpr std::size_t side = 16 / sizeof(Element);

  // Columns, and how many elements lie between the first of one and the first of the next: 1, or 2
  // for rows of gate and up that alternate. 0 if it is something else.
  static std::int64_t distance(const std::byte* const* first) {
    const std::ptrdiff_t bytes = first[1] - first[0];
    for (std::size_t c = 2; c < side; ++c) {
      if (first[c] - first[c - 1] != bytes) return 0;
    }
    const auto element = static_cast<std::ptrdiff_t>(sizeof(Element));
    return bytes == element ? 1 : bytes == 2 * element ? 2 : 0;
  }

  // Reads `side` elements of as many columns; `stride` is in elements. Writes columns `to_stride`
  // elements apart.
  static void copy(const Element* from, std::int64_t distance, std::int64_t stride, Element* to,
                   std::size_t to_stride) {
    Vector rows[side];
    for (std::size_t k = 0; k < side; ++k) {
      rows[k] = load(from + static_cast<std::int64_t>(k) * stride, distance);
    }
    // Each round interleaves the first half of the vectors with the second.
    for (std::size_t round = 1; round < side; round *= 2) {
      Vector mixed[side];
      for (std::size_t i = 0; i < side / 2; ++i) {
        mixed[2 * i] = low(rows[i], rows[i + side / 2]);
        mixed[2 * i + 1] = high(rows[i], rows[i + side / 2]);
      }
      std::memcpy(rows, mixed, sizeof rows);
    }
    for (std::size_t c = 0; c < side; ++c) std::memcpy(to + c * to_stride, &rows[c], 16);
  }

 private:
  using Vector [[gnu::vector_size(16)]] = Element;

  static Vector load_all(const Element* from) {
    Vector all;
    std::memcpy(&all, from, sizeof all);
    return all;
  }
  // The second vector begins with the last element of the first, so that nothing behind the last
  // column is read.
  static Vector load(const Element* from, std::int64_t distance) {
    const Vector first = load_all(from);
    if (distance == 1) return first;
    const Vector second = load_all(from + side - 1);
    if constexpr (side == 8) {
      return __builtin_shufflevector(first, second, 0, 2, 4, 6, 9, 11, 13, 15);
    } else {
      return __builtin_shufflevector(first, second, 0, 2, 5, 7);
    }
  }
  static Vector low(Vector a, Vector b) {
    if constexpr (side == 8) {
      return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    } else {
      return __builtin_shufflevector(a, b, 0, 4, 1, 5);
    }
  }
  static Vector high(Vector a, Vector b) {
    if constexpr (side == 8) {
      return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    } else {
      return __builtin_shufflevector(a, b, 2, 6, 3, 7);
    }
  }
};

// Writes columns of `depth` elements, which lie `stride` elements apart, one after the other, with
// `to_stride` elements from the first of one to the first of the next.
template <class Element>
void gather_columns(RowPointers first, std::int64_t stride, std::size_t depth, Element* to,
                    std::size_t to_stride) {
  constexpr std::size_t side = Square<Element>::side;
  constexpr std::size_t ahead = 2 * side;  // of depth, fetched early
  const auto at = [&](std::size_t c, std::size_t k) {
    return reinterpret_cast<const Element*>(first[c]) + static_cast<std::int64_t>(k) * stride;
  };
  for (std::size_t begin = 0; begin < depth; begin += side) {
    const std::size_t end = std::min(depth, begin + side);
    for (std::size_t c = 0; c < first.size();) {
      const bool whole = c + side <= first.size() && end - begin == side;
      const std::int64_t distance = whole ? Square<Element>::distance(&first[c]) : 0;
      if (distance == 0) {
        for (std::size_t k = begin; k < end; ++k) to[c * to_stride + k] = *at(c, k);
        ++c;
        continue;
      }
      for (std::size_t k = begin + ahead; k < std::min(depth, end + ahead); ++k) {
        __builtin_prefetch(at(c, k));
      }
      Square<Element>::copy(at(c, begin), distance, stride, to + c * to_stride + begin, to_stride);
      c += side;
    }
  }
}

}  // namespace ps::detail
