// The CPU's matrix product, in blocks that fit into the caches: used by gemm() and moe().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/product/kernel.h"
#include "penstock/base/dtype.h"

namespace ps::detail {

// Where columns begin, and how many elements lie between two of the same column.
struct Columns {
  RowPointers first;
  std::int64_t stride = 1;

  std::size_t size() const { return first.size(); }
};

// The dot products of some rows, which are contiguous in memory, with some columns. Rows are copied
// once for all columns that they are multiplied with.
class ProductBlock {
 public:
  static constexpr std::size_t most_rows = 128, most_columns = 128;

  ProductBlock(DType type, const ProductKernel& kernel)
      : element_(size_of(type)), kernel_(kernel) {}
  explicit ProductBlock(DType type) : ProductBlock(type, best_product_kernel(type)) {}

  // Rows of `depth` elements, at most most_rows.
  void set_rows(RowPointers rows, std::size_t depth);

  // At most most_columns columns.
  void multiply(const Columns& columns);

  // The dot products of a row, after multiply().
  float* sums(std::size_t row) { return sums_.get() + row * most_columns; }

 private:
  // A copy of columns in which each is contiguous.
  RowPointers gathered(const Columns& columns);

  std::size_t element_;
  const ProductKernel& kernel_;
  std::size_t rows_ = 0, depth_ = 0;
  std::vector<std::byte> packed_, columns_;
  std::array<const std::byte*, most_columns> gathered_{};
  std::size_t sum_rows_ = 0;  // that sums_ has
  std::unique_ptr<float[]> sums_;
};

}  // namespace ps::detail
