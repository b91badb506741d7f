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

template <class Element, unsigned bytes>
union Elements {
  Vector<bytes> vector;
  Element element[bytes / sizeof(Element)];
  __device__ Elements() {}
  __device__ explicit Elements(const Vector<bytes>& v) : vector(v) {}
};

template <class Element, unsigned bytes>
__device__ inline Vector<bytes> blended_vector(const Vector<bytes>& x, const Vector<bytes>& y,
                                               NumberOf<Element> w) {
  using A = Arithmetic<Element>;
  const Elements<Element, bytes> a(x), b(y);
  Elements<Element, bytes> out;
#pragma unroll
  for (unsigned i = 0; i < bytes / sizeof(Element); ++i) {
    out.element[i] = A::narrow(blended(A::widen(a.element[i]), A::widen(b.element[i]), w));
  }
  return out.vector;
}

}  // namespace ps::resampling
