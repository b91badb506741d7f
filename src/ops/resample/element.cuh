// Elements and vectors of them on a GPU. Numbers are made by the formulas of formula.h, so that
// both places give the same bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "ops/resample/formula.h"

namespace ps::resampling {

// Elements that are only moved, whatever they are.
struct Moved {};

// What a type is computed in.
template <class Element>
struct Arithmetic {
  using Number = double;
  static __device__ double widen(Element x) { return x; }
  static __device__ Element narrow(double x) { return static_cast<Element>(x); }
};
template <>
struct Arithmetic<__half> {
  using Number = float;
  static __device__ float widen(__half x) { return __half2float(x); }
  static __device__ __half narrow(float x) { return __float2half_rn(x); }
};
template <>
struct Arithmetic<__nv_bfloat16> {
  using Number = float;
  static __device__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __device__ __nv_bfloat16 narrow(float x) { return __float2bfloat16_rn(x); }
};
template <>
struct Arithmetic<Moved> {
  using Number = float;
};
template <class Element>
using NumberOf = typename Arithmetic<Element>::Number;

// So many bytes at once.
template <unsigned bytes>
struct alignas(bytes) Vector {
  using Word = std::conditional_t<bytes == 1, std::uint8_t,
                                  std::conditional_t<bytes == 2, std::uint16_t, std::uint32_t>>;
  static constexpr unsigned words = bytes < 4 ? 1 : bytes / 4;
  Word word[words];
};

template <unsigned bytes>
__device__ inline Vector<bytes> load(const unsigned char* from) {
  return *reinterpret_cast<const Vector<bytes>*>(from);
}
template <unsigned bytes>
__device__ inline void store(unsigned char* to, const Vector<bytes>& v) {
  *reinterpret_cast<Vector<bytes>*>(to) = v;
}

// One element's bits, which fill 8 bytes, over and over.
template <unsigned bytes>
__device__ inline Vector<bytes> repeated(std::uint64_t bits) {
  Vector<bytes> v;
#pragma unroll
  for (unsigned i = 0; i < Vector<bytes>::words; ++i) {
    v.word[i] = static_cast<typename Vector<bytes>::Word>(i % 2 == 0 ? bits : bits >> 32);
  }
  return v;
}

// A vector's elements as numbers, and back.
template <class Element, unsigned bytes>
struct Numbers {
  static constexpr unsigned count = bytes / sizeof(Element);
  NumberOf<Element> number[count];

  union Elements {
    Vector<bytes> vector;
    Element element[count];
    __device__ Elements() {}
  };

  __device__ explicit Numbers(const Vector<bytes>& v) {
    if constexpr (std::is_same_v<Element, __nv_bfloat16> && bytes >= 4) {
      // The upper half of a float: an instruction each, which a conversion is not.
#pragma unroll
      for (unsigned i = 0; i < count; ++i) {
        const std::uint32_t word = v.word[i / 2];
        number[i] = __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000U);
      }
    } else {
      Elements from;
      from.vector = v;
#pragma unroll
      for (unsigned i = 0; i < count; ++i) {
        number[i] = Arithmetic<Element>::widen(from.element[i]);
      }
    }
  }

  __device__ Vector<bytes> narrowed() const {
    Elements to;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      to.element[i] = Arithmetic<Element>::narrow(number[i]);
    }
    return to.vector;
  }
};

// The f64 of an f32's bits, 2^896 times too small: conversions have a slow pipe. Not of infinity
// and NaN.
__device__ inline double shrunk(std::uint32_t bits) {
  std::int64_t shifted;  // in one instruction
  asm("mul.wide.s32 %0, %1, 0x20000000;" : "=l"(shifted) : "r"(bits));
  return __longlong_as_double(shifted & static_cast<std::int64_t>(0x8fffffffffffffffULL));
}

// blended() of f32, y being neither infinite nor NaN: the same roundings, y - x being one.
__device__ inline float blended_float(float x, std::uint32_t y, double w) {
  const double from = x;
  return static_cast<float>(__fma_rn(w, __fma_rn(shrunk(y), 0x1p896, -from), from));
}

template <class Element, unsigned bytes>
__device__ inline Vector<bytes> blended_vector(const Vector<bytes>& x, const Vector<bytes>& y,
                                               NumberOf<Element> w) {
  Numbers<Element, bytes> a(x);
  const Numbers<Element, bytes> b(y);
#pragma unroll
  for (unsigned i = 0; i < a.count; ++i) a.number[i] = blended(a.number[i], b.number[i], w);
  return a.narrowed();
}

// Whether blended_float() suits all: no y is infinite or none. Asked of f32 alone.
template <class Element, unsigned bytes, unsigned count>
__device__ inline bool all_finite(const Vector<bytes> (&y)[count]) {
  if constexpr (!std::is_same_v<Element, float>) return false;
  float none = 0;  // NaN where some is not
#pragma unroll
  for (unsigned k = 0; k < count; ++k) {
    float of_vector = 0;
#pragma unroll
    for (unsigned i = 0; i < y[k].words; ++i) {
      of_vector = __fmaf_rn(__uint_as_float(y[k].word[i]), 0, of_vector);
    }
    none += of_vector;
  }
  return none == 0;
}

// Blends x with y; where w is nought it stays. A w of nought is -0 and has y equal to x. `finite`:
// what all_finite() says.
template <class Element, unsigned bytes>
__device__ inline void blend(Vector<bytes>& x, const Vector<bytes>& y, NumberOf<Element> w,
                             bool finite) {
  if constexpr (std::is_same_v<Element, float>) {
    if (finite) [[likely]] {
      // x + -0 (x - x) is x, nought's sign included.
#pragma unroll
      for (unsigned i = 0; i < x.words; ++i) {
        const float from = __uint_as_float(x.word[i]);
        x.word[i] = __float_as_uint(blended_float(from, y.word[i], w));
      }
      return;
    }
  }
  const Vector<bytes> blend = blended_vector<Element>(x, y, w);
  x = w != 0 ? blend : x;
}

}  // namespace ps::resampling
