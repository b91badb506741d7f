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

void store(double* to, Doubles x) { _mm256_storeu_pd(to, x.v); }
void store(float* to, Doubles x) { _mm_storeu_ps(to, _mm256_cvtpd_ps(x.v)); }
void store(float* to, Floats x) { _mm256_storeu_ps(to, x.v); }
void store(float* to, Pairs x) {
  const __m256 low = _mm256_unpacklo_ps(x.even.v, x.odd.v);
  const __m256 high = _mm256_unpackhi_ps(x.even.v, x.odd.v);
  _mm256_storeu_ps(to, _mm256_permute2f128_ps(low, high, 0x20));
  _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(low, high, 0x31));
}
void store(F16* to, Floats x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// Rounded, in the high halves.
__m256i to_bf16(Floats x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
}
__m256i quiet_where_nan(__m256i rounded, Floats x) {
  const __m256i quiet = _mm256_or_si256(_mm256_castps_si256(x.v), _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, is_nan);
}
void store(BF16* to, Pairs x) {
  __m256i even = to_bf16(x.even), odd = to_bf16(x.odd);
  if (_mm256_movemask_ps(_mm256_cmp_ps(x.even.v, x.odd.v, _CMP_UNORD_Q)) != 0) {
    even = quiet_where_nan(even, x.even);
    odd = quiet_where_nan(odd, x.odd);
  }
  const __m256i bits = _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xAA);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bits);
}

// Calls step(i) for vectors of `lanes` that together are [0, count), the last one moved back over
// the one before it. False where there is not one vector.
template <std::size_t lanes, class Step>
bool whole_steps(std::size_t count, const Step& step) {
  if (count < lanes) return false;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) step(i);
  if (i < count) step(count - lanes);
  return true;
}

// Fewer elements than a vector has, with zeros behind them.
template <class T, std::size_t lanes>
struct Padded {
  T value[lanes] = {};

  Padded() = default;
  Padded(const T* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) value[i] = from[i];
  }
  void copy_to(T* to, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) to[i] = value[i];
  }
};

template <class T>
void blend(void* out, const void* x, const void* y, double w, std::size_t count) {
  using Vector = decltype(load(static_cast<const T*>(x)));
  const Vector weight(w);
  const auto step = [&](T* to, const T* from, const T* other) {
    const Vector first = load(from), second = load(other);
    store(to, multiply_add(weight, second - first, first));
  };
  T* to = static_cast<T*>(out);
  const T *from = static_cast<const T*>(x), *other = static_cast<const T*>(y);
  if (whole_steps<Vector::lanes>(count,
                                 [&](std::size_t i) { step(to + i, from + i, other + i); })) {
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
  const auto step = [&](std::size_t i) { store(to + i, Vector(sums + i)); };
  if (whole_steps<Vector::lanes>(count, step)) return;
  Padded<T, Vector::lanes> result;
  store(result.value, Vector(Padded<Sum, Vector::lanes>(sums, count).value));
  result.copy_to(to, count);
}

template <class T>
RowKernels rows_of() {
  return {blend<T>, nullptr, add<T>, round<T>};
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
