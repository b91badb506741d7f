// Vectors of consecutive elements: loads, stores, conversions, and a function applied to them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "penstock/ops/transform/tuning.h"

namespace ps::elementwise {

template <class T, unsigned n>
struct alignas(sizeof(T) * n) Pack {
  T value[n];
};

// Elements per vector, chosen so that the largest type fills 16 bytes.
template <class... T>
constexpr unsigned vector_width() {
  unsigned largest = 1;
  ((largest = sizeof(T) > largest ? sizeof(T) : largest), ...);
  return largest >= 16 ? 1 : 16 / largest;
}

namespace detail {

template <unsigned bytes>
struct WordOf;
template <>
struct WordOf<1> {
  using type = unsigned char;
};
template <>
struct WordOf<2> {
  using type = unsigned short;
};
template <>
struct WordOf<4> {
  using type = unsigned;
};
template <>
struct WordOf<8> {
  using type = uint2;
};
template <>
struct WordOf<16> {
  using type = uint4;
};

__device__ inline uint4 load_around(const uint4* from) {
  uint4 word;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return word;
}
__device__ inline uint2 load_around(const uint2* from) {
  uint2 word;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];"
               : "=r"(word.x), "=r"(word.y)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return word;
}
template <class Word>
__device__ inline Word load_around(const Word* from) {
  return __ldcs(from);
}

}  // namespace detail

template <Load load, class T, unsigned n>
__device__ inline Pack<T, n> load_pack(const T* from) {
  using Word = typename detail::WordOf<sizeof(T) * n>::type;
  const auto* words = reinterpret_cast<const Word*>(from);
  Pack<T, n> pack;
  auto& word = reinterpret_cast<Word&>(pack);
  if constexpr (load == Load::plain) {
    word = *words;
  } else if constexpr (load == Load::streaming) {
    word = __ldcs(words);
  } else {
    word = detail::load_around(words);
  }
  return pack;
}

template <Store store, class T, unsigned n>
__device__ inline void store_pack(T* to, const Pack<T, n>& pack) {
  using Word = typename detail::WordOf<sizeof(T) * n>::type;
  auto* words = reinterpret_cast<Word*>(to);
  const auto& word = reinterpret_cast<const Word&>(pack);
  if constexpr (store == Store::plain) {
    *words = word;
  } else {
    __stcs(words, word);
  }
}

// Conversion to and from f32, of 16-bit elements in pairs.
template <class T, unsigned n>
__device__ inline void widen(const Pack<T, n>& from, float (&to)[n]) {
  for (unsigned e = 0; e < n; ++e) to[e] = static_cast<float>(from.value[e]);
}
template <unsigned n>
__device__ inline void widen(const Pack<__nv_bfloat16, n>& from, float (&to)[n]) {
  if constexpr (n % 2 == 0) {
    const auto* pairs = reinterpret_cast<const std::uint32_t*>(from.value);
    for (unsigned p = 0; p < n / 2; ++p) {
      to[2 * p] = __uint_as_float(pairs[p] << 16);
      to[2 * p + 1] = __uint_as_float(pairs[p] & 0xFFFF0000U);
    }
  } else {
    for (unsigned e = 0; e < n; ++e) to[e] = __bfloat162float(from.value[e]);
  }
}
template <unsigned n>
__device__ inline void widen(const Pack<__half, n>& from, float (&to)[n]) {
  if constexpr (n % 2 == 0) {
    const auto* pairs = reinterpret_cast<const __half2*>(from.value);
    for (unsigned p = 0; p < n / 2; ++p) {
      const float2 both = __half22float2(pairs[p]);
      to[2 * p] = both.x;
      to[2 * p + 1] = both.y;
    }
  } else {
    for (unsigned e = 0; e < n; ++e) to[e] = __half2float(from.value[e]);
  }
}
template <class T, unsigned n>
__device__ inline void narrow(const float (&from)[n], Pack<T, n>& to) {
  for (unsigned e = 0; e < n; ++e) to.value[e] = static_cast<T>(from[e]);
}
template <unsigned n>
__device__ inline void narrow(const float (&from)[n], Pack<__nv_bfloat16, n>& to) {
  if constexpr (n % 2 == 0) {
    auto* pairs = reinterpret_cast<__nv_bfloat162*>(to.value);
    for (unsigned p = 0; p < n / 2; ++p) {
      pairs[p] = __floats2bfloat162_rn(from[2 * p], from[2 * p + 1]);
    }
  } else {
    for (unsigned e = 0; e < n; ++e) to.value[e] = __float2bfloat16_rn(from[e]);
  }
}
template <unsigned n>
__device__ inline void narrow(const float (&from)[n], Pack<__half, n>& to) {
  if constexpr (n % 2 == 0) {
    auto* pairs = reinterpret_cast<__half2*>(to.value);
    for (unsigned p = 0; p < n / 2; ++p) {
      pairs[p] = __floats2half2_rn(from[2 * p], from[2 * p + 1]);
    }
  } else {
    for (unsigned e = 0; e < n; ++e) to.value[e] = __float2half_rn(from[e]);
  }
}

// Whether a function takes and returns float for all element types: it declares
// `using computes_in = float;`.
template <class Function>
concept ComputesInFloat = requires { typename Function::computes_in; } &&
                          sizeof(typename Function::computes_in) == sizeof(float);

template <class T, unsigned n>
struct Widened {
  float value[n];
  __device__ explicit Widened(const Pack<T, n>& from) { widen(from, value); }
};

namespace detail {
template <unsigned n, class Function, class Out, class... Wide>
__device__ inline void apply_wide(const Function& function, Pack<Out, n>& out, const Wide&... in) {
  float result[n];
#pragma unroll
  for (unsigned e = 0; e < n; ++e) result[e] = function(in.value[e]...);
  narrow(result, out);
}
}  // namespace detail

template <unsigned n, class Function, class Out, class... In>
__device__ inline void apply(const Function& function, Pack<Out, n>& out,
                             const Pack<In, n>&... in) {
  if constexpr (ComputesInFloat<Function>) {
    detail::apply_wide(function, out, Widened<In, n>(in)...);
  } else {
#pragma unroll
    for (unsigned e = 0; e < n; ++e) out.value[e] = static_cast<Out>(function(in.value[e]...));
  }
}

}  // namespace ps::elementwise
