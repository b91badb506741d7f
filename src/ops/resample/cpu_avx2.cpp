// Rows in vectors: four f64 or eight f32 are computed at once. Everything behind the pragma is
// compiled for AVX2, and nothing of it may be a function that other files have too: the linker
// keeps one of them for all.
#include <cstddef>
#include <cstdint>

#include "ops/resample/rows.h"
#include "ops/transform/half.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include <immintrin.h>

#pragma GCC target("avx2,fma,f16c")

namespace ps::resampling {
namespace {

using detail::BF16;
using detail::F16;

struct Doubles {
  using Element = double;
  static constexpr std::size_t lanes = 4;
  Doubles(__m256d of) : v(of) {}
  Doubles(double all) : v(_mm256_set1_pd(all)) {}
  explicit Doubles(const double* from) : v(_mm256_loadu_pd(from)) {}
  __m256d v;
};
Doubles operator-(Doubles a, Doubles b) { return _mm256_sub_pd(a.v, b.v); }
Doubles multiply_add(Doubles a, Doubles b, Doubles c) { return _mm256_fmadd_pd(a.v, b.v, c.v); }

struct Floats {
  using Element = float;
  static constexpr std::size_t lanes = 8;
  Floats(__m256 of) : v(of) {}
  Floats(double all) : v(_mm256_set1_ps(static_cast<float>(all))) {}
  explicit Floats(const float* from) : v(_mm256_loadu_ps(from)) {}
  __m256 v;
};
Floats operator-(Floats a, Floats b) { return _mm256_sub_ps(a.v, b.v); }
Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a.v, b.v, c.v); }

// Sixteen numbers, those of even and of odd places apart: as bf16 lies in memory, which then need
// not be shuffled.
struct Pairs {
  using Element = float;
  static constexpr std::size_t lanes = 16;
  Pairs(Floats of_even, Floats of_odd) : even(of_even), odd(of_odd) {}
  Pairs(double all) : even(all), odd(all) {}
  explicit Pairs(const float* from) : even(apart<0x88>(from)), odd(apart<0xDD>(from)) {}
  Floats even, odd;

 private:
  template <int places>
  static Floats apart(const float* from) {
    // A shuffle works within halves of a register; the permutation undoes that.
    const __m256 all = _mm256_shuffle_ps(_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8), places);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(all), 0xD8));
  }
};
Pairs operator-(Pairs a, Pairs b) { return {a.even - b.even, a.odd - b.odd}; }
Pairs multiply_add(Pairs a, Pairs b, Pairs c) {
  return {multiply_add(a.even, b.even, c.even), multiply_add(a.odd, b.odd, c.odd)};
}

Doubles load(const double* from) { return Doubles(from); }
Doubles load(const float* from) { return _mm256_cvtps_pd(_mm_loadu_ps(from)); }
Floats load(const F16* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

Pairs load(const BF16* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i odd = _mm256_and_si256(bits, _mm256_set1_epi32(-0x10000));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)), _mm256_castsi256_ps(odd)};
}

// Whether what is written passes by the caches; `to` is then a multiple of past_alignment.
enum class Caching : std::uint8_t { keep, pass };

template <Caching caching>
void put(void* to, __m128i bits) {
  if constexpr (caching == Caching::pass) {
    _mm_stream_si128(static_cast<__m128i*>(to), bits);
  } else {
    _mm_storeu_si128(static_cast<__m128i*>(to), bits);
  }
}
template <Caching caching>
void put(void* to, __m256i bits) {
  if constexpr (caching == Caching::pass) {
    put<caching>(to, _mm256_castsi256_si128(bits));
    put<caching>(static_cast<__m128i*>(to) + 1, _mm256_extracti128_si256(bits, 1));
  } else {
    _mm256_storeu_si256(static_cast<__m256i*>(to), bits);
  }
}

template <Caching caching = Caching::keep>
void store(double* to, Doubles x) {
  put<caching>(to, _mm256_castpd_si256(x.v));
}
template <Caching caching = Caching::keep>
void store(float* to, Doubles x) {
  put<caching>(to, _mm_castps_si128(_mm256_cvtpd_ps(x.v)));
}
template <Caching caching = Caching::keep>
void store(F16* to, Floats x) {
  put<caching>(to, _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// Rounded, in the high halves. NaN stays one where its low half is zero: of all that arithmetic
// makes of bf16, and of with_plain_nan().
__m256i to_bf16(Floats x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
}
template <Caching caching = Caching::keep>
void store(BF16* to, Pairs x) {
  const __m256i even = to_bf16(x.even), odd = to_bf16(x.odd);
  put<caching>(to, _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xAA));
}

Doubles with_plain_nan(Doubles x) { return x; }
Floats with_plain_nan(Floats x) {
  const __m256 is_nan = _mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q);
  return _mm256_blendv_ps(x.v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)), is_nan);
}
Pairs with_plain_nan(Pairs x) { return {with_plain_nan(x.even), with_plain_nan(x.odd)}; }

void store(float* to, Floats x) { _mm256_storeu_ps(to, x.v); }
void store(float* to, Pairs x) {
  const __m256 low = _mm256_unpacklo_ps(x.even.v, x.odd.v);
  const __m256 high = _mm256_unpackhi_ps(x.even.v, x.odd.v);
  _mm256_storeu_ps(to, _mm256_permute2f128_ps(low, high, 0x20));
  _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

// Calls step(i) for vectors of `lanes` that together are [0, count), the last one moved back over
// the one before it, and line(i) before those of each whole cache line. False where there is not
// one vector.
template <std::size_t lanes, std::size_t of_line, class Step, class Line>
bool whole_steps(std::size_t count, const Step& step, const Line& line) {
  if (count < lanes) return false;
  std::size_t i = 0;
  for (; i + of_line <= count; i += of_line) {
    line(i);
    for (std::size_t k = 0; k < of_line; k += lanes) step(i + k);
  }
  for (; i + lanes <= count; i += lanes) step(i);
  if (i < count) step(count - lanes);
  return true;
}

// Fewer elements than a vector has, with zeros behind them.
template <class T, std::size_t lanes>
struct Padded {
  alignas(past_alignment) T value[lanes] = {};

  Padded() = default;
  Padded(const T* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) value[i] = from[i];
  }
  void copy_to(T* to, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) to[i] = value[i];
  }
};

template <class T, Caching caching>
void blend(const BlendRow& row, std::size_t count) {
  using Vector = decltype(load(static_cast<const T*>(row.x)));
  const Vector weight = with_plain_nan(Vector(row.w));
  const auto step = [&](T* to, const T* from, const T* other) {
    const Vector first = load(from), second = load(other);
    store<caching>(to, multiply_add(weight, second - first, first));
  };
  T* to = static_cast<T*>(row.out);
  const T *from = static_cast<const T*>(row.x), *other = static_cast<const T*>(row.y);
  const T *soon = static_cast<const T*>(row.soon_x), *later = static_cast<const T*>(row.soon_y);
  // One row after the other: mostly they are neighbours, and the CPU sees that one long row comes.
  const auto coming = [&](std::size_t i) { return i < count ? soon + i : later + (i - count); };
  constexpr std::size_t of_line = line_bytes / sizeof(T);
  if (whole_steps<Vector::lanes, of_line>(
          count, [&](std::size_t i) { step(to + i, from + i, other + i); },
          // GCC would leave out calls of a function that only prefetches.
          [&](std::size_t i) __attribute__((always_inline)) {
            __builtin_prefetch(coming(2 * i));
            __builtin_prefetch(coming(2 * i + of_line));
          })) {
    __builtin_prefetch(soon + count - 1);  // may be in a line of its own
    __builtin_prefetch(later + count - 1);
    return;
  }
  using Part = Padded<T, Vector::lanes>;
  Part result;
  step(result.value, Part(from, count).value, Part(other, count).value);
  result.copy_to(to, count);
}

// Its last vector is not moved back: no sum may be added to twice.
template <class T>
void add(void* sum, const void* row, double w, std::size_t count) {
  using Vector = decltype(load(static_cast<const T*>(row)));
  using Sum = typename Vector::Element;
  constexpr std::size_t lanes = Vector::lanes;
  const Vector weight(w);
  const auto step = [&](Sum* sums, const T* from) {
    store(sums, multiply_add(weight, load(from), Vector(sums)));
  };
  Sum* sums = static_cast<Sum*>(sum);
  const T* from = static_cast<const T*>(row);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) step(sums + i, from + i);
  if (i == count) return;
  Padded<Sum, lanes> rest(sums + i, count - i);
  step(rest.value, Padded<T, lanes>(from + i, count - i).value);
  rest.copy_to(sums + i, count - i);
}

template <class T>
void round(void* out, const void* sum, std::size_t count) {
  using Vector = decltype(load(static_cast<const T*>(out)));
  using Sum = typename Vector::Element;
  T* to = static_cast<T*>(out);
  const Sum* sums = static_cast<const Sum*>(sum);
  const auto step = [&](std::size_t i) { store(to + i, with_plain_nan(Vector(sums + i))); };
  if (whole_steps<Vector::lanes, Vector::lanes>(count, step, [](std::size_t) {})) return;
  Padded<T, Vector::lanes> result;
  store(result.value, with_plain_nan(Vector(Padded<Sum, Vector::lanes>(sums, count).value)));
  result.copy_to(to, count);
}

template <class T>
RowKernels rows_of() {
  return {.blend = blend<T, Caching::keep>,
          .blend_past = blend<T, Caching::pass>,
          .settle = [] { _mm_sfence(); },
          .add = add<T>,
          .round = round<T>};
}

}  // namespace

RowKernels avx2_rows(DType type) {
  const bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                   __builtin_cpu_supports("f16c") != 0;
  if (!has) return {};
  if (type == DType::f64) return rows_of<double>();
  if (type == DType::f32) return rows_of<float>();
  if (type == DType::f16) return rows_of<F16>();
  if (type == DType::bf16) return rows_of<BF16>();
  return {};
}

}  // namespace ps::resampling

#else

namespace ps::resampling {

RowKernels avx2_rows(DType) { return {}; }

}  // namespace ps::resampling

#endif
