// The CPU's gemm(). A task is a block of rows and columns of out, so that every sum is computed by
// one thread, in the same order however the tasks are divided.
#include <algorithm>
#include <array>

#include "ops/cpu_product.h"
#include "ops/cpu_rows.h"
#include "ops/gemm/work.h"
#include "penstock/base/checked.h"
#include "penstock/host/parallel.h"

namespace ps::detail {
namespace {

// Where rows [first, first + count) of a matrix begin.
template <std::size_t most>
void point_at(std::array<const std::byte*, most>& rows, const void* matrix, std::int64_t stride,
              std::size_t first, std::size_t count, DType type) {
  const auto row_bytes = stride * static_cast<std::int64_t>(size_of(type));
  for (std::size_t r = 0; r < count; ++r) {
    rows[r] =
        static_cast<const std::byte*>(matrix) + static_cast<std::int64_t>(first + r) * row_bytes;
  }
}

void set_rows(const GemmWork& work, ProductBlock& block, std::size_t row) {
  std::array<const std::byte*, ProductBlock::most_rows> rows;
  const std::size_t height = std::min(rows.size(), static_cast<std::size_t>(work.m) - row);
  point_at(rows, work.a, work.a_row, row, height, work.type);
  block.set_rows({rows.data(), height}, static_cast<std::size_t>(work.k));
}

// With the rows that were set.
void compute_block(const GemmWork& work, ProductBlock& block, std::size_t row, std::size_t column) {
  std::array<const std::byte*, ProductBlock::most_columns> columns;
  const std::size_t height =
      std::min(ProductBlock::most_rows, static_cast<std::size_t>(work.m) - row);
  const std::size_t width = std::min(columns.size(), static_cast<std::size_t>(work.n) - column);
  point_at(columns, work.b, work.b_row, column, width, work.type);
  block.multiply({.first = {columns.data(), width}});
  for (std::size_t r = 0; r < height; ++r) {
    const std::int64_t at =
        static_cast<std::int64_t>(row + r) * work.out_row + static_cast<std::int64_t>(column);
    narrow_row(
        block.sums(r), work.type,
        static_cast<std::byte*>(work.out) + at * static_cast<std::int64_t>(size_of(work.type)),
        width);
  }
}

void compute(const GemmWork& work) {
  const std::size_t down = ceil_div(static_cast<std::size_t>(work.m), ProductBlock::most_rows);
  const std::size_t across = ceil_div(static_cast<std::size_t>(work.n), ProductBlock::most_columns);
  parallel_ranges(down * across, 1, [&](std::size_t begin, std::size_t end) {
    ProductBlock block(work.type);
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t row = i / across * ProductBlock::most_rows;
      if (i == begin || i % across == 0) set_rows(work, block, row);
      compute_block(work, block, row, i % across * ProductBlock::most_columns);
    }
  });
}

}  // namespace

void gemm_cpu(const GemmWork& work, const Stream& stream) {
  stream.call([work] { compute(work); });
}

}  // namespace ps::detail
