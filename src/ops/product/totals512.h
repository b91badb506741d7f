// Sums in vectors of 16 for dots.h; included after AVX-512 has been chosen.
#pragma once

#include <immintrin.h>

namespace ps::detail {

struct Totals512 {
  using Sum = __m512;

  static Sum zero() { return _mm512_setzero_ps(); }

  // Adds neighbours, then pairs, then the quarters of the vectors.
  static void totals(const Sum (&sum)[4], float* to) {
    const __m512 first = _mm512_add_ps(_mm512_unpacklo_ps(sum[0], sum[1]),  //
                                       _mm512_unpackhi_ps(sum[0], sum[1]));
    const __m512 second =
        _mm512_add_ps(_mm512_unpacklo_ps(sum[2], sum[3]), _mm512_unpackhi_ps(sum[2], sum[3]));
    const __m512 quarters =
        _mm512_add_ps(_mm512_shuffle_ps(first, second, _MM_SHUFFLE(1, 0, 1, 0)),
                      _mm512_shuffle_ps(first, second, _MM_SHUFFLE(3, 2, 3, 2)));
    const __m256 halves =
        _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps(quarters, 1));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
  }
};

}  // namespace ps::detail
