// The rotation of append_kv() with AVX2 and FMA. Everything behind the pragma is compiled for them,
// and nothing of it may be a function that other files have too.
#include "ops/append_kv/cpu.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include <immintrin.h>

#pragma GCC target("avx2,fma")

namespace ps::detail {
namespace {

constexpr std::size_t lanes = 8;

__m256 negative(__m256 x) { return _mm256_xor_ps(x, _mm256_set1_ps(-0.0F)); }

void halves(const float* from, const float* cos, const float* sin, std::size_t count, float* to) {
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const __m256 x = _mm256_loadu_ps(from + i), y = _mm256_loadu_ps(from + count + i);
    const __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
    _mm256_storeu_ps(to + i, _mm256_fmadd_ps(x, c, negative(_mm256_mul_ps(y, s))));
    _mm256_storeu_ps(to + count + i, _mm256_fmadd_ps(y, c, _mm256_mul_ps(x, s)));
  }
  for (; i < count; ++i) {
    const float x = from[i], y = from[count + i], ys = y * sin[i], xs = x * sin[i];
    to[i] = __builtin_fmaf(x, cos[i], -ys);
    to[count + i] = __builtin_fmaf(y, cos[i], xs);
  }
}

void neighbours(const float* from, const float* cos, const float* sin, std::size_t count,
                float* to) {
  // Each number of four becomes two neighbours.
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  const __m256 signs = _mm256_setr_ps(-0.0F, 0, -0.0F, 0, -0.0F, 0, -0.0F, 0);
  std::size_t i = 0;
  for (; i + lanes / 2 <= count; i += lanes / 2) {
    const __m256 pairs = _mm256_loadu_ps(from + 2 * i);
    const __m256 swapped = _mm256_permute_ps(pairs, 0b10'11'00'01);
    const auto doubled = [&](const float* table) {
      return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(table + i)), twice);
    };
    const __m256 others = _mm256_xor_ps(_mm256_mul_ps(swapped, doubled(sin)), signs);
    _mm256_storeu_ps(to + 2 * i, _mm256_fmadd_ps(pairs, doubled(cos), others));
  }
  for (; i < count; ++i) {
    const float x = from[2 * i], y = from[2 * i + 1], ys = y * sin[i], xs = x * sin[i];
    to[2 * i] = __builtin_fmaf(x, cos[i], -ys);
    to[2 * i + 1] = __builtin_fmaf(y, cos[i], xs);
  }
}

}  // namespace

RotateRows rotate_rows_avx2() {
  const bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  return has ? RotateRows{halves, neighbours} : RotateRows{};
}

}  // namespace ps::detail

#else

namespace ps::detail {

RotateRows rotate_rows_avx2() { return {}; }

}  // namespace ps::detail

#endif
