// The CPU's matrix product, in blocks that fit into the caches: used by gemm() and moe().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "ops/cpu_rows.h"
#include "penstock/base/dtype.h"

namespace ps::detail {

using RowPointers = std::span<const std::byte* const>;

// Where columns begin, and how many elements lie between two of the same column.
struct Columns {
  RowPointers first;
  std::int64_t stride = 1;

  std::size_t size() const { return first.size(); }
};

// A block of a matrix product: the dot products of some rows, which are contiguous in memory, with
// some columns.
class ProductBlock {
 public:
  static constexpr std::size_t most_rows = 32, most_columns = 64;

  // Rows and columns of `depth` elements.
  void multiply(RowPointers rows, const Columns& columns, std::size_t depth, DType type) {
    const std::size_t element = size_of(type);
    std::memset(sums_, 0, sizeof sums_);
    for (std::size_t begin = 0; begin < depth; begin += step) {
      const std::size_t count = std::min(step, depth - begin);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        widen_row(rows[r] + begin * element, type, rows_[r], count);
      }
      for (std::size_t c = 0; c < columns.size(); ++c) {
        float column[step];
        widen_column(columns, c, begin, count, type, column);
        for (std::size_t k = 0; k < count; ++k) columns_[k][c] = column[k];
      }
      add_products(rows.size(), columns.size(), count);
    }
  }

  float* sums(std::size_t row) { return sums_[row]; }

 private:
  using Vector [[gnu::vector_size(16)]] = float;
  static constexpr std::size_t step = 128;                       // of the depth, in cache at a time
  static constexpr std::size_t tile_rows = 4, tile_columns = 8;  // in registers at a time

  static void widen_column(const Columns& columns, std::size_t c, std::size_t begin,
                           std::size_t count, DType type, float* to) {
    const std::size_t element = size_of(type);
    const std::byte* from =
        columns.first[c] + static_cast<std::int64_t>(begin * element) * columns.stride;
    if (columns.stride == 1) return widen_row(from, type, to, count);
    std::byte elements[step * sizeof(float)];
    for (std::size_t k = 0; k < count; ++k) {
      std::memcpy(elements + k * element, from, element);
      from += static_cast<std::int64_t>(element) * columns.stride;
    }
    widen_row(elements, type, to, count);
  }

  // The last tiles may reach past the rows and columns there are; nobody reads those sums.
  void add_products(std::size_t rows, std::size_t columns, std::size_t count) {
    for (std::size_t r = 0; r < rows; r += tile_rows) {
      for (std::size_t c = 0; c < columns; c += tile_columns) add_tile(r, c, count);
    }
  }

  void add_tile(std::size_t row, std::size_t column, std::size_t count) {
    constexpr std::size_t lanes = sizeof(Vector) / sizeof(float), vectors = tile_columns / lanes;
    Vector sum[tile_rows][vectors] = {};
    for (std::size_t k = 0; k < count; ++k) {
      Vector factor[vectors];
      std::memcpy(factor, &columns_[k][column], sizeof factor);
      for (std::size_t r = 0; r < tile_rows; ++r) {
        for (std::size_t v = 0; v < vectors; ++v) sum[r][v] += rows_[row + r][k] * factor[v];
      }
    }
    for (std::size_t r = 0; r < tile_rows; ++r) {
      Vector total[vectors];
      std::memcpy(total, &sums_[row + r][column], sizeof total);
      for (std::size_t v = 0; v < vectors; ++v) total[v] += sum[r][v];
      std::memcpy(&sums_[row + r][column], total, sizeof total);
    }
  }

  float rows_[most_rows][step] = {};
  float columns_[step][most_columns] = {};
  float sums_[most_rows][most_columns] = {};
};

}  // namespace ps::detail
