// The CPU's attention with AVX2 and FMA.
#include "ops/attention/cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <cmath>
#include <cstddef>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

#include "ops/attention/cpu_rows.h"

namespace ps::detail {
namespace {

struct Lanes {
  using Vector = __m256;
  using Bits [[gnu::vector_size(32)]] = int;
  static constexpr std::size_t lanes = 8, rows = 6, vectors = 2;

  static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Vector vector) { _mm256_storeu_ps(to, vector); }
  static Vector all(float x) { return _mm256_set1_ps(x); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector greater(Vector a, Vector b) { return _mm256_max_ps(a, b); }
  static Vector less(Vector a, Vector b) { return _mm256_min_ps(a, b); }
};

}  // namespace

const AttentionRows* attention_rows_avx2() {
  static constexpr AttentionRows functions = VectorRows<Lanes>::functions();
  return &functions;
}

}  // namespace ps::detail

#if defined(__clang__)
#pragma clang attribute pop
#endif

#else

namespace ps::detail {

const AttentionRows* attention_rows_avx2() { return nullptr; }

}  // namespace ps::detail

#endif
