// The CPU's matrix product of bf16 with the dot products of AVX512_BF16.
#include "ops/product/kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <cstring>

#if !defined(__clang__) && __GNUC__ < 13  // which warns of its own headers
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#endif

#include "ops/product/dots.h"
#include "ops/product/totals512.h"

namespace ps::detail {
namespace {

struct Lanes : Totals512 {
  using Row = __m512i;
  using Column = __m512i;
  static constexpr std::size_t element = 2, step = 32, packed_step = 64, tile_rows = 6;

  static void pack(const std::byte* from, std::size_t count, std::byte* to) {
    _mm512_store_si512(to, column_part(from, count));
  }
  static Row row(const std::byte* from) { return _mm512_load_si512(from); }
  static Column column(const std::byte* from) { return _mm512_loadu_si512(from); }
  static Column column_part(const std::byte* from, std::size_t count) {
    return _mm512_maskz_loadu_epi16(count < 32 ? (1U << count) - 1 : ~0U, from);
  }
  static Sum add(Sum sum, Row row, Column column) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(row),
                            reinterpret_cast<__m512bh>(column));
  }
};

}  // namespace

const ProductKernel* product_avx512_bf16(DType type) {
  static constexpr ProductKernel bf16 = Dots<Lanes>::kernel();
  return type == DType::bf16 ? &bf16 : nullptr;
}

}  // namespace ps::detail

#if defined(__clang__)
#pragma clang attribute pop
#endif

#else

namespace ps::detail {

const ProductKernel* product_avx512_bf16(DType) { return nullptr; }

}  // namespace ps::detail

#endif
