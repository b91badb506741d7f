// The CPU's matrix product with AVX-512: f32, and 16-bit types widened as they are loaded.
#include "ops/product/kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <cstring>

#if !defined(__clang__) && __GNUC__ < 13  // which warns of its own headers
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
#endif

#include "ops/product/dots.h"
#include "ops/product/totals512.h"

namespace ps::detail {
namespace {

__mmask16 first(std::size_t count) { return static_cast<__mmask16>((1U << count) - 1); }

struct Float {
  static constexpr std::size_t element = 4;
  static __m512 load(const std::byte* from) { return _mm512_loadu_ps(from); }
  static __m512 load(const std::byte* from, std::size_t count) {
    return _mm512_maskz_loadu_ps(first(count), from);
  }
};

struct Half {
  static constexpr std::size_t element = 2;
  static __m512 wide(__m256i half) { return _mm512_cvtph_ps(half); }
  static __m512 load(const std::byte* from) {
    return wide(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static __m512 load(const std::byte* from, std::size_t count) {
    return wide(_mm256_maskz_loadu_epi16(first(count), from));
  }
};

struct Brain {
  static constexpr std::size_t element = 2;
  static __m512 wide(__m256i brain) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(brain), 16));
  }
  static __m512 load(const std::byte* from) {
    return wide(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static __m512 load(const std::byte* from, std::size_t count) {
    return wide(_mm256_maskz_loadu_epi16(first(count), from));
  }
};

// Rows are packed as f32.
template <class Type>
struct Lanes : Totals512 {
  using Row = __m512;
  using Column = __m512;
  static constexpr std::size_t element = Type::element, step = 16, packed_step = 64, tile_rows = 6;

  static void pack(const std::byte* from, std::size_t count, std::byte* to) {
    _mm512_store_ps(to, Type::load(from, count));
  }
  static Row row(const std::byte* from) { return _mm512_load_ps(from); }
  static Column column(const std::byte* from) { return Type::load(from); }
  static Column column_part(const std::byte* from, std::size_t count) {
    return Type::load(from, count);
  }
  static Sum add(Sum sum, Row row, Column column) { return _mm512_fmadd_ps(row, column, sum); }
};

}  // namespace

const ProductKernel* product_avx512(DType type) {
  static constexpr ProductKernel f32 = Dots<Lanes<Float>>::kernel();
  static constexpr ProductKernel f16 = Dots<Lanes<Half>>::kernel();
  static constexpr ProductKernel bf16 = Dots<Lanes<Brain>>::kernel();
  return type == DType::f32 ? &f32 : type == DType::f16 ? &f16 : &bf16;
}

}  // namespace ps::detail

#if defined(__clang__)
#pragma clang attribute pop
#endif

#else

namespace ps::detail {

const ProductKernel* product_avx512(DType) { return nullptr; }

}  // namespace ps::detail

#endif
