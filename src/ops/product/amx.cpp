// The CPU's matrix product of bf16 with the tiles of AMX.
//
// A tile of columns, the weights, is the first operand: 16 columns, 32 elements deep, loaded as
// they lie in memory. Rows are packed as the second operand: tiles in which the elements 2 k and
// 2 k + 1 of 16 rows are next to each other. So a result has columns down and rows across.
#include "ops/product/kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <cstring>
#include <vector>

#if !defined(__clang__) && __GNUC__ < 13  // which warns of its own headers
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#if defined(__clang__)
#pragma clang attribute push(                                                        \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16"))), \
    apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16")
#endif

namespace ps::detail {
namespace {

constexpr std::size_t side = 16;                  // rows of a tile
constexpr std::size_t step = 32, row_bytes = 64;  // elements and bytes of one of them
constexpr std::size_t tile_bytes = side * row_bytes;

std::size_t steps_of(std::size_t depth) { return (depth + step - 1) / step; }

// Transposes 16 vectors of 16 numbers: first 4 by 4 within quarters of vectors, then the quarters.
void transpose(__m512i (&rows)[side]) {
  __m512i pairs[side], fours[side];
  for (std::size_t i = 0; i < side; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (std::size_t i = 0; i < side; i += 4) {
    fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  constexpr int even = 0x88, odd = 0xDD;  // quarters 0 and 2, or 1 and 3, of both vectors
  for (std::size_t i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(fours[i], fours[4 + i], even);
    const __m512i b = _mm512_shuffle_i32x4(fours[i], fours[4 + i], odd);
    const __m512i c = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], even);
    const __m512i d = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], odd);
    rows[i] = _mm512_shuffle_i32x4(a, c, even);
    rows[4 + i] = _mm512_shuffle_i32x4(b, d, even);
    rows[8 + i] = _mm512_shuffle_i32x4(a, c, odd);
    rows[12 + i] = _mm512_shuffle_i32x4(b, d, odd);
  }
}

std::size_t packed_bytes(std::size_t rows, std::size_t depth) {
  return (rows + side - 1) / side * steps_of(depth) * tile_bytes;
}

void pack(RowPointers rows, std::size_t depth, std::byte* to) {
  for (std::size_t first = 0; first < rows.size(); first += side) {
    for (std::size_t k = 0; k < depth; k += step, to += tile_bytes) {
      const std::size_t count = depth - k < step ? depth - k : step;
      const __mmask32 mask = count < step ? (1U << count) - 1 : ~0U;
      __m512i tile[side];
      for (std::size_t r = 0; r < side; ++r) {
        tile[r] = first + r < rows.size() ? _mm512_maskz_loadu_epi16(mask, rows[first + r] + 2 * k)
                                          : _mm512_setzero_si512();
      }
      transpose(tile);
      for (std::size_t r = 0; r < side; ++r) _mm512_store_si512(to + r * row_bytes, tile[r]);
    }
  }
}

// 16 columns, at equal distances.
struct ColumnTile {
  const std::byte* first = nullptr;
  std::ptrdiff_t stride = 0;  // bytes
};

// Fewer than 16 columns, columns at other distances, and a depth of no whole tiles are copied, with
// zeros for what is missing.
ColumnTile column_tile(RowPointers columns, std::size_t depth, std::vector<std::byte>& copy) {
  const std::ptrdiff_t stride = columns.size() == side ? columns[1] - columns[0] : 0;
  bool even = columns.size() == side && depth % step == 0;
  for (std::size_t c = 1; even && c < side; ++c) even = columns[c] - columns[c - 1] == stride;
  if (even) return {columns[0], stride};
  const std::size_t bytes = steps_of(depth) * row_bytes;
  copy.assign(side * bytes, std::byte{});
  for (std::size_t c = 0; c < columns.size(); ++c) {
    std::memcpy(copy.data() + c * bytes, columns[c], 2 * depth);
  }
  // The compiler does not know that loads of tiles read memory.
  __asm__ volatile("" : : "r"(copy.data()) : "memory");
  return {copy.data(), static_cast<std::ptrdiff_t>(bytes)};
}

// The layout of the tile registers, as LDTILECFG reads it: all have 16 rows of 64 bytes.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {};
  std::uint8_t rows[16] = {};

  constexpr TileConfiguration() {
    for (int tile = 0; tile < 8; ++tile) {
      bytes[tile] = row_bytes;
      rows[tile] = side;
    }
  }
};

constexpr TileConfiguration configuration;

// Part of the results: `columns` down, `rows` across.
struct Corner {
  float* sums;
  std::size_t stride, rows, columns;

  void store(const float* tile) const {
    __m512i across[side];
    for (std::size_t c = 0; c < side; ++c) across[c] = _mm512_load_si512(tile + c * side);
    transpose(across);
    const auto mask = static_cast<__mmask16>((1U << columns) - 1);
    for (std::size_t r = 0; r < rows; ++r) {
      _mm512_mask_storeu_epi32(sums + r * stride, mask, across[r]);
    }
  }
};

// The products of one or two tiles of columns with one or two tiles of rows. Tiles 0 to 3 are sums,
// 4 and 5 columns, 6 and 7 rows. `next` are columns that are needed soon.
template <bool two_columns, bool two_rows>
void multiply_tiles(const ColumnTile (&column)[2], const std::byte* packed, std::size_t steps,
                    RowPointers next, const Corner (&corners)[4]) {
  const std::byte* second = packed + steps * tile_bytes;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::size_t s = 0; s < steps; ++s) {
    for (const std::byte* each : next) __builtin_prefetch(each + s * row_bytes, 0, 2);
    _tile_loadd(4, column[0].first + s * row_bytes, column[0].stride);
    _tile_loadd(6, packed + s * tile_bytes, row_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (two_rows) {
      _tile_loadd(7, second + s * tile_bytes, row_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (two_columns) {
      _tile_loadd(5, column[1].first + s * row_bytes, column[1].stride);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (two_columns && two_rows) _tile_dpbf16ps(3, 5, 7);
  }
  alignas(64) float tile[side * side];
  _tile_stored(0, tile, row_bytes);
  corners[0].store(tile);
  if constexpr (two_rows) {
    _tile_stored(1, tile, row_bytes);
    corners[1].store(tile);
  }
  if constexpr (two_columns) {
    _tile_stored(2, tile, row_bytes);
    corners[2].store(tile);
  }
  if constexpr (two_columns && two_rows) {
    _tile_stored(3, tile, row_bytes);
    corners[3].store(tile);
  }
}

constexpr decltype(&multiply_tiles<true, true>) multiply_by_number[2][2] = {
    {multiply_tiles<false, false>, multiply_tiles<false, true>},
    {multiply_tiles<true, false>, multiply_tiles<true, true>}};

void multiply(const std::byte* packed, std::size_t rows, RowPointers columns, std::size_t depth,
              float* sums, std::size_t stride) {
  const std::size_t steps = steps_of(depth);
  const auto at_most = [](std::size_t count, std::size_t most) {
    return count < most ? count : most;
  };
  std::vector<std::byte> copies[2];
  _tile_loadconfig(&configuration);
  for (std::size_t c = 0; c < columns.size(); c += 2 * side) {
    const RowPointers here = columns.subspan(c, at_most(columns.size() - c, 2 * side));
    const std::size_t first_columns = at_most(here.size(), side);
    const bool two_columns = here.size() > side;
    ColumnTile tiles[2] = {column_tile(here.first(first_columns), depth, copies[0]), {}};
    if (two_columns) tiles[1] = column_tile(here.subspan(side), depth, copies[1]);
    const RowPointers after = columns.subspan(c + here.size());
    for (std::size_t r = 0; r < rows; r += 2 * side) {
      const std::size_t rows_left = rows - r;
      const std::size_t first_rows = at_most(rows_left, side);
      const std::size_t second_rows = at_most(rows_left - first_rows, side);
      float* to = sums + r * stride + c;
      const Corner corners[4] = {
          {to, stride, first_rows, first_columns},
          {to + side * stride, stride, second_rows, first_columns},
          {to + side, stride, first_rows, here.size() - first_columns},
          {to + side * stride + side, stride, second_rows, here.size() - first_columns}};
      // With the first rows, columns come from memory; meanwhile those after them are fetched.
      const RowPointers next =
          r == 0 ? after.first(at_most(after.size(), 2 * side)) : RowPointers{};
      multiply_by_number[two_columns][second_rows > 0](
          tiles, packed + r / side * steps * tile_bytes, steps, next, corners);
    }
  }
  _tile_release();
}

constexpr ProductKernel kernel{packed_bytes, pack, multiply};

}  // namespace

const ProductKernel* product_amx(DType type) { return type == DType::bf16 ? &kernel : nullptr; }

}  // namespace ps::detail

#if defined(__clang__)
#pragma clang attribute pop
#endif

#else

namespace ps::detail {

const ProductKernel* product_amx(DType) { return nullptr; }

}  // namespace ps::detail

#endif
