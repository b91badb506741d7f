// The CPU's matrix product with AVX2, FMA and F16C: f32, and 16-bit types widened as they are
// loaded.
#include "ops/product/kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <cstring>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

#include "ops/product/dots.h"

namespace ps::detail {
namespace {

struct Float {
  static constexpr std::size_t element = 4;
  static __m256 load(const std::byte* from) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  }
};

struct Half {
  static constexpr std::size_t element = 2;
  static __m256 load(const std::byte* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
};

struct Brain {
  static constexpr std::size_t element = 2;
  static __m256 load(const std::byte* from) {
    const __m128i brain = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(brain), 16));
  }
};

// Rows are packed as f32.
template <class Type>
struct Lanes {
  using Row = __m256;
  using Column = __m256;
  using Sum = __m256;
  static constexpr std::size_t element = Type::element, step = 8, packed_step = 32, tile_rows = 2;

  static void pack(const std::byte* from, std::size_t count, std::byte* to) {
    _mm256_store_ps(reinterpret_cast<float*>(to), column_part(from, count));
  }
  static Row row(const std::byte* from) {
    return _mm256_load_ps(reinterpret_cast<const float*>(from));
  }
  static Column column(const std::byte* from) { return Type::load(from); }
  static Column column_part(const std::byte* from, std::size_t count) {
    std::byte elements[step * element] = {};
    std::memcpy(elements, from, count * element);
    return Type::load(elements);
  }
  static Sum zero() { return _mm256_setzero_ps(); }
  static Sum add(Sum sum, Row row, Column column) { return _mm256_fmadd_ps(row, column, sum); }

  // Adds neighbours, then pairs, then the halves of the vectors.
  static void totals(const Sum (&sum)[4], float* to) {
    const __m256 halves =
        _mm256_hadd_ps(_mm256_hadd_ps(sum[0], sum[1]), _mm256_hadd_ps(sum[2], sum[3]));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
  }
};

}  // namespace

const ProductKernel* product_avx2(DType type) {
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

const ProductKernel* product_avx2(DType) { return nullptr; }

}  // namespace ps::detail

#endif
