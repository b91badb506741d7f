// A matrix product by vectors of partial sums: rows and columns are both read along their depth, so
// that columns, the weights, stream from memory as they lie there. Files include this after they
// have chosen their instructions, and give it Lanes of an anonymous namespace, so that what is
// compiled for them stays theirs:
//
//   element, step           bytes of an element of a column, and elements of depth per vector
//   tile_rows               rows whose sums with 4 columns are in registers at a time
//   Row, Column, Sum        vectors
//   pack(from, count, to)   stores a Row of `count` elements and zeros, in packed_step bytes
//   row(from)               loads what pack() stored
//   column(from), column_part(from, count)   load a Column; the missing elements are 0
//   zero(), add(sum, row, column)            a Sum, and one with the products added
//   totals(sums, to)        the totals of 4 Sums
#pragma once

#include "ops/product/kernel.h"

namespace ps::detail {

template <class Lanes>
class Dots {
 public:
  static constexpr ProductKernel kernel() { return {packed_bytes, pack, multiply}; }

 private:
  using Sum = typename Lanes::Sum;
  static constexpr std::size_t tile_columns = 4;

  // One vector more than needed: rows whose distance is a power of two would share cache sets.
  static std::size_t row_bytes(std::size_t depth) {
    return ((depth + Lanes::step - 1) / Lanes::step + 1) * Lanes::packed_step;
  }

  static std::size_t packed_bytes(std::size_t rows, std::size_t depth) {
    return rows * row_bytes(depth);
  }

  static void pack(RowPointers rows, std::size_t depth, std::byte* to) {
    for (const std::byte* from : rows) {
      std::byte* packed = to;
      for (std::size_t k = 0; k < depth; k += Lanes::step, packed += Lanes::packed_step) {
        const std::size_t left = depth - k;
        Lanes::pack(from + k * Lanes::element, left < Lanes::step ? left : Lanes::step, packed);
      }
      to += row_bytes(depth);
    }
  }

  // Adds the products of one vector of depth.
  template <std::size_t rows, std::size_t columns>
  static void add(Sum (&sum)[rows][tile_columns], const std::byte* packed, std::size_t row_stride,
                  const typename Lanes::Column (&column)[columns]) {
    for (std::size_t r = 0; r < rows; ++r) {
      const typename Lanes::Row row = Lanes::row(packed + r * row_stride);
      for (std::size_t c = 0; c < columns; ++c) sum[r][c] = Lanes::add(sum[r][c], row, column[c]);
    }
  }

  // `next`: columns that are needed soon, or null.
  template <std::size_t rows, std::size_t columns>
  static void tile(const std::byte* packed, const std::byte* const* column,
                   const std::byte* const* next, std::size_t depth, float* sums,
                   std::size_t stride) {
    const std::size_t row_stride = row_bytes(depth);
    typename Lanes::Column of[columns];
    Sum sum[rows][tile_columns];
    for (auto& of_row : sum) {
      for (Sum& each : of_row) each = Lanes::zero();
    }
    std::size_t k = 0;
    for (; k + Lanes::step <= depth; k += Lanes::step, packed += Lanes::packed_step) {
      for (std::size_t c = 0; c < columns; ++c) {
        if (next != nullptr) __builtin_prefetch(next[c] + k * Lanes::element, 0, 2);
        of[c] = Lanes::column(column[c] + k * Lanes::element);
      }
      add<rows, columns>(sum, packed, row_stride, of);
    }
    if (k < depth) {
      for (std::size_t c = 0; c < columns; ++c) {
        of[c] = Lanes::column_part(column[c] + k * Lanes::element, depth - k);
      }
      add<rows, columns>(sum, packed, row_stride, of);
    }
    for (std::size_t r = 0; r < rows; ++r) {
      float totals[tile_columns];
      Lanes::totals(sum[r], totals);
      for (std::size_t c = 0; c < columns; ++c) sums[r * stride + c] = totals[c];
    }
  }

  // All rows with `columns` columns. The first tile's columns come from memory; meanwhile those
  // after them are fetched.
  template <std::size_t columns>
  static void all_rows(const std::byte* packed, std::size_t rows, const std::byte* const* column,
                       const std::byte* const* next, std::size_t depth, float* sums,
                       std::size_t stride) {
    constexpr std::size_t most = Lanes::tile_rows;
    const std::size_t row_stride = row_bytes(depth);
    for (; rows >= most; rows -= most) {
      tile<most, columns>(packed, column, next, depth, sums, stride);
      next = nullptr;
      packed += most * row_stride;
      sums += most * stride;
    }
    last_rows<most - 1, columns>(packed, rows, column, next, depth, sums, stride);
  }

  template <std::size_t most, std::size_t columns>
  static void last_rows(const std::byte* packed, std::size_t rows, const std::byte* const* column,
                        const std::byte* const* next, std::size_t depth, float* sums,
                        std::size_t stride) {
    if constexpr (most > 0) {
      if (rows == most) return tile<most, columns>(packed, column, next, depth, sums, stride);
      last_rows<most - 1, columns>(packed, rows, column, next, depth, sums, stride);
    }
  }

  static void multiply(const std::byte* packed, std::size_t rows, RowPointers columns,
                       std::size_t depth, float* sums, std::size_t stride) {
    std::size_t c = 0;
    for (; c + tile_columns <= columns.size(); c += tile_columns) {
      const bool more = c + 2 * tile_columns <= columns.size();
      all_rows<tile_columns>(packed, rows, &columns[c], more ? &columns[c + tile_columns] : nullptr,
                             depth, sums + c, stride);
    }
    for (; c < columns.size(); ++c) {
      all_rows<1>(packed, rows, &columns[c], nullptr, depth, sums + c, stride);
    }
  }
};

}  // namespace ps::detail
