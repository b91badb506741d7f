// The CPU's transform in vectors of eight: loaded, computed and stored in one go, so that memory
// and arithmetic overlap. Everything behind the pragma is compiled for AVX2, and nothing of it may
// be a function that other files have too: the linker keeps one of them for all.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "penstock/host/stream.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include <immintrin.h>

#pragma GCC target("avx2,fma,f16c")

#include "ops/transform/cpu.h"

namespace ps::elementwise {
namespace {

struct Vector {
  Vector(__m256 of) : v(of) {}
  Vector(float all) : v(_mm256_set1_ps(all)) {}
  __m256 v;
};

Vector operator+(Vector a, Vector b) { return _mm256_add_ps(a.v, b.v); }
Vector operator*(Vector a, Vector b) { return _mm256_mul_ps(a.v, b.v); }
Vector operator/(Vector a, Vector b) { return _mm256_div_ps(a.v, b.v); }
Vector operator-(Vector a) { return _mm256_xor_ps(a.v, _mm256_set1_ps(-0.0F)); }

Vector fused(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a.v, b.v, c.v); }

// Of a NaN and a number, max and min give the second operand.
Vector at_least(Vector x, Vector least) { return _mm256_max_ps(least.v, x.v); }
Vector size_at_most(Vector x, Vector most) {
  return _mm256_min_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0F), x.v), most.v);
}

Vector power_of_two(__m256i exponent) {
  const __m256i biased = _mm256_add_epi32(exponent, _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}

// 2^n * 2^f with |f| <= 1/2, and 2^f by a polynomial fitted to it (1.9e-9). 2^n goes in two
// factors, since n may lie outside what one exponent holds.
Vector exponential(Vector x) {
  constexpr float log2_e_rest = 1.92596299e-8F;
  const __m256 limited = _mm256_min_ps(_mm256_set1_ps(89.0F), x.v);
  const Vector inside = _mm256_max_ps(_mm256_set1_ps(-104.0F), limited);
  const Vector n =
      _mm256_round_ps((inside * log2_e).v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const Vector f = fused(inside, log2_e_rest, fused(inside, log2_e, -n));
  Vector power = fused(0.00015345811F, f, 0.00133999309F);
  power = fused(power, f, 0.00961848907F);
  power = fused(power, f, 0.0555032864F);
  power = fused(power, f, 0.240226462F);
  power = fused(power, f, 0.693147182F);
  power = fused(power, f, 1.0F);
  const __m256i exponent = _mm256_cvtps_epi32(n.v), half = _mm256_srai_epi32(exponent, 1);
  return power * power_of_two(half) * power_of_two(_mm256_sub_epi32(exponent, half));
}

}  // namespace
}  // namespace ps::elementwise

namespace ps::detail {
namespace {

using elementwise::Vector;

constexpr std::size_t step = 16;  // elements: two vectors of f32, one of 16 bits

Vector load(const float* from) { return _mm256_loadu_ps(from); }
Vector load(const F16* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
Vector load(const BF16* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// `to` is aligned to a vector where caches are passed by.
void put(void* to, __m256i value, Caching caching) {
  if (caching == Caching::pass) {
    _mm256_stream_si256(static_cast<__m256i*>(to), value);
  } else {
    _mm256_storeu_si256(static_cast<__m256i*>(to), value);
  }
}

void store(float* to, Vector low, Vector high, Caching caching) {
  put(to, _mm256_castps_si256(low.v), caching);
  put(to + 8, _mm256_castps_si256(high.v), caching);
}

void store(F16* to, Vector low, Vector high, Caching caching) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  put(to, _mm256_set_m128i(_mm256_cvtps_ph(high.v, nearest), _mm256_cvtps_ph(low.v, nearest)),
      caching);
}

// As the low halves of eight words.
__m256i to_bf16(Vector x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
}

void store(BF16* to, Vector low, Vector high, Caching caching) {
  // Packing works within halves of a register; the permutation undoes that.
  const __m256i packed = _mm256_packus_epi32(to_bf16(low), to_bf16(high));
  put(to, _mm256_permute4x64_epi64(packed, 0xD8), caching);
}

template <class F, class Out, class... In>
void whole_step(const F& function, Caching caching, Out* out, const In*... in) {
  const Vector low = function(load(in)...), high = function(load(in + 8)...);
  store(out, low, high, caching);
}

template <class T>
struct Padded {
  T value[step] = {};

  Padded(const T* from, std::size_t count) { __builtin_memcpy(value, from, count * sizeof(T)); }
};

// Fewer than a step, by the same instructions: a result does not depend on where its element lies.
template <class F, class Out, class... In>
void part_of_step(const F& function, std::size_t count, Out* out, const In*... in) {
  Out result[step];
  whole_step(function, Caching::keep, result, Padded<In>(in, count).value...);
  __builtin_memcpy(out, result, count * sizeof(Out));
}

template <class F, class Out, class... In>
void range(const F& function, std::size_t count, Caching caching, Out* out, const In*... in) {
  std::size_t i = 0;
  if (caching == Caching::pass) {  // which needs aligned vectors
    const std::size_t past = reinterpret_cast<std::uintptr_t>(out) % sizeof(__m256i);
    i = (sizeof(__m256i) - past) % sizeof(__m256i) / sizeof(Out);
    if (i > count) i = count;
    if (i > 0) part_of_step(function, i, out, in...);
    for (; count - i >= step; i += step) {
      whole_step(function, Caching::pass, out + i, (in + i)...);
    }
    _mm_sfence();
  } else {
    for (; count - i >= step; i += step) {
      whole_step(function, Caching::keep, out + i, (in + i)...);
    }
  }
  if (i < count) part_of_step(function, count - i, out + i, (in + i)...);
}

void run_range(const TransformWork& work, std::size_t begin, std::size_t end, Caching caching) {
  elementwise::dispatch<CpuTypes, elementwise::Precision::full>(
      work, [&]<class F, class Out, class... In>(const F& function, Out* out, const In*... in) {
        if constexpr (requires { typename F::computes_in; }) {
          range(function, end - begin, caching, out + begin, (in + begin)...);
        }
      });
}

}  // namespace

CpuRange transform_avx2() {
  const bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                   __builtin_cpu_supports("f16c") != 0;
  return has ? run_range : nullptr;
}

}  // namespace ps::detail

#else

#include "ops/transform/cpu.h"

namespace ps::detail {

CpuRange transform_avx2() { return nullptr; }

}  // namespace ps::detail

#endif
