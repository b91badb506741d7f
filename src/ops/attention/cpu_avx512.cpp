// The CPU's attention with AVX-512.
#include "ops/attention/cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <cmath>
#include <cstddef>

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

#include "ops/attention/cpu_rows.h"

namespace ps::detail {
namespace {

struct Lanes {
  using Vector = __m512;
  using Bits [[gnu::vector_size(64)]] = int;
  static constexpr std::size_t lanes = 16, rows = 6, vectors = 4;

  static Vector load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Vector vector) { _mm512_storeu_ps(to, vector); }
  static Vector all(float x) { return _mm512_set1_ps(x); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector greater(Vector a, Vector b) { return _mm512_max_ps(a, b); }
  static Vector less(Vector a, Vector b) { return _mm512_min_ps(a, b); }
};

}  // namespace

const AttentionRows* attention_rows_avx512() {
  static constexpr AttentionRows functions = VectorRows<Lanes>::functions();
  return &functions;
}

}  // namespace ps::detail

#if defined(__clang__)
#pragma clang attribute pop
#endif

#else

namespace ps::detail {

const AttentionRows* attention_rows_avx512() { return nullptr; }

}  // namespace ps::detail

#endif
