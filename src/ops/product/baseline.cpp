// The CPU's matrix product with what every CPU has: vectors of four, and columns of 16-bit types
// widened before they are multiplied.
#include <cstring>
#include <vector>

#include "ops/cpu_rows.h"
#include "ops/product/dots.h"

namespace ps::detail {
namespace {

using Four [[gnu::vector_size(16)]] = float;

struct Lanes {
  using Row = Four;
  using Column = Four;
  using Sum = Four;
  static constexpr std::size_t element = 4, step = 4, packed_step = 16, tile_rows = 2;

  static void pack(const std::byte* from, std::size_t count, std::byte* to) {
    std::memset(to, 0, packed_step);
    std::memcpy(to, from, count * element);
  }
  static Four row(const std::byte* from) { return column(from); }
  static Four column(const std::byte* from) {
    Four four;
    std::memcpy(&four, from, sizeof four);
    return four;
  }
  static Four column_part(const std::byte* from, std::size_t count) {
    Four four{};
    std::memcpy(&four, from, count * element);
    return four;
  }
  static Four zero() { return Four{}; }
  static Four add(Four sum, Four row, Four column) { return sum + row * column; }
  static void totals(const Four (&sum)[4], float* to) {
    for (std::size_t c = 0; c < 4; ++c) {
      to[c] = (sum[c][0] + sum[c][1]) + (sum[c][2] + sum[c][3]);
    }
  }
};

constexpr ProductKernel of_f32 = Dots<Lanes>::kernel();

template <DType type>
void pack_widened(RowPointers rows, std::size_t depth, std::byte* to) {
  std::vector<float> wide(depth);
  const auto* first = reinterpret_cast<const std::byte*>(wide.data());
  const std::size_t row_bytes = of_f32.packed_bytes(1, depth);
  for (const std::byte* row : rows) {
    widen_row(row, type, wide.data(), depth);
    of_f32.pack({&first, 1}, depth, to);
    to += row_bytes;
  }
}

template <DType type>
void multiply_widened(const std::byte* packed, std::size_t rows, RowPointers columns,
                      std::size_t depth, float* sums, std::size_t stride) {
  constexpr std::size_t most = 4;  // as many as are multiplied at a time
  std::vector<float> wide(most * depth);
  for (std::size_t begin = 0; begin < columns.size(); begin += most) {
    const std::size_t count = columns.size() - begin < most ? columns.size() - begin : most;
    const std::byte* pointers[most];
    for (std::size_t c = 0; c < count; ++c) {
      float* to = wide.data() + c * depth;
      widen_row(columns[begin + c], type, to, depth);
      pointers[c] = reinterpret_cast<const std::byte*>(to);
    }
    of_f32.multiply(packed, rows, {pointers, count}, depth, sums + begin, stride);
  }
}

template <DType type>
constexpr ProductKernel widened{of_f32.packed_bytes, pack_widened<type>, multiply_widened<type>};

}  // namespace

const ProductKernel* product_baseline(DType type) {
  return type == DType::f32   ? &of_f32
         : type == DType::f16 ? &widened<DType::f16>
                              : &widened<DType::bf16>;
}

}  // namespace ps::detail
