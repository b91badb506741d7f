// What the prebuilt functions compute, in f32, for the GPU and the CPU alike: templates over a
// number or, on the CPU, a vector of them (cpu_avx2.cpp). Branch-free. NaN stays NaN; at the
// infinities they have their limits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "penstock/kit/config.h"

namespace ps::elementwise {

// How well exponentials are computed: to the last digits of f32, or well past those of 16 bits,
// which costs a GPU a third of the instructions.
enum class Precision : std::uint8_t { full, half };

PENSTOCK_HD inline float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

// The larger one; NaN if x is.
PENSTOCK_HD inline float at_least(float x, float least) {
#if defined(__CUDA_ARCH__)
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(least));
  return larger;
#else
  return x < least ? least : x;
#endif
}

// The smaller of |x| and `most`, which it is for NaN.
PENSTOCK_HD inline float size_at_most(float x, float most) { return fminf(fabsf(x), most); }

constexpr auto log2_e = std::numbers::log2e_v<float>;

// e^x to the last digits; 0 and infinity where f32 ends.
PENSTOCK_HD inline float exponential(float x) { return expf(x); }

// 2^x, within 1e-6.
PENSTOCK_HD inline float quick_power(float x) {
#if defined(__CUDA_ARCH__)
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return exp2f(x);
#endif
}

template <Precision precision, class V>
PENSTOCK_HD inline V quotient(V a, V b) {
#if defined(__CUDA_ARCH__)
  if constexpr (precision == Precision::full) return __fdividef(a, b);
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return a * inverse;
#else
  return a / b;
#endif
}

// 1 / b, for b that is neither huge nor tiny.
template <Precision precision, class V>
PENSTOCK_HD inline V inverse(V b) {
  const V first = quotient<precision>(V(1.0F), b);
#if defined(__CUDA_ARCH__)
  // A GPU's quick one is off by a few last digits: one step towards the root brings them.
  if constexpr (precision == Precision::full) return fused(first, fused(-b, first, 1.0F), first);
#endif
  return first;
}

// x / (1 + power). Where the power is infinite the quotient is 0, even for minus infinity.
template <Precision precision, class V>
PENSTOCK_HD inline V damped(V x, V power) {
  constexpr float lowest = -3.40282347e+38F;
  return quotient<precision>(at_least(x, lowest), 1.0F + power);
}

struct Identity {
  using computes_in = float;
  static constexpr bool light = true;
  template <class V>
  PENSTOCK_HD V operator()(V x) const {
    return x;
  }
};

struct Scale {
  using computes_in = float;
  static constexpr bool light = true;
  float factor;
  template <class V>
  PENSTOCK_HD V operator()(V x) const {
    return factor * x;
  }
};

// One rounding less than the formula has, the same on every machine.
struct Axpby {
  using computes_in = float;
  static constexpr bool light = true;
  float a, b;
  template <class V>
  PENSTOCK_HD V operator()(V x, V y) const {
    return fused(a, x, b * y);
  }
};

// From left to right.
struct Add {
  using computes_in = float;
  static constexpr bool light = true;
  template <class V, class... Others>
  PENSTOCK_HD V operator()(V x, Others... others) const {
    return (x + ... + others);
  }
};

struct Mul {
  using computes_in = float;
  static constexpr bool light = true;
  template <class V>
  PENSTOCK_HD V operator()(V x, V y) const {
    return x * y;
  }
};

template <Precision precision>
struct Swiglu {
  using computes_in = float;
  template <class V>
  PENSTOCK_HD V operator()(V gate, V up) const {
    if constexpr (precision == Precision::full) {
      return damped<precision>(gate, exponential(-gate)) * up;
    } else {
      return damped<precision>(gate, quick_power(-log2_e * gate)) * up;
    }
  }
};

// x times the share of a normal distribution below x.
//
// The share below -|x| is e^(-x^2/2) P(t), t = 1 / (1 + p |x|), with P fitted so that its relative
// error is even: 1.3e-8 (full) and 3.5e-5 (half). That keeps its digits where 1 + erf loses them.
template <Precision precision>
struct GeluExact {
  using computes_in = float;
  template <class V>
  PENSTOCK_HD V operator()(V x) const {
    const V a = size_at_most(x, 64.0F);  // nothing is left below -64
    if constexpr (precision == Precision::full) {
      const V t = inverse<precision>(fused(0.21F, a, V(1.0F)));
      V share = fused(-0.0720338598F, t, 0.285452873F);
      share = fused(share, t, -0.334188551F);
      share = fused(share, t, 0.354032397F);
      share = fused(share, t, -0.0972448513F);
      share = fused(share, t, 0.126354784F);
      share = fused(share, t, 0.0687901303F);
      share = fused(share, t, 0.0851293951F);
      share = fused(share, t, 0.0837076977F);
      // What the square loses in rounding is large in the exponent.
      const V square = a * a, rest = fused(a, a, -square);
      const V power = exponential(-0.5F * square);
      share = share * t * fused(-0.5F * rest, power, power);
      return fused(-a, share, at_least(x, 0.0F));
    } else {
      const V t = inverse<precision>(fused(0.38F, a, V(1.0F)));
      V share = fused(-0.0899283215F, t, 0.18887642F);
      share = fused(share, t, 0.0919797793F);
      share = fused(share, t, 0.157829463F);
      share = fused(share, t, 0.151225135F);
      share = share * (t * quick_power(a * (-0.5F * log2_e * a)));
      return fused(-a, share, at_least(x, 0.0F));
    }
  }
};

// The usual approximation of it: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), which is x times a
// sigmoid.
template <Precision precision>
struct GeluTanh {
  using computes_in = float;
  template <class V>
  PENSTOCK_HD V operator()(V x) const {
    constexpr float linear = 1.59576912F,
                    cubic = 0.0713548163F;  // 2 sqrt(2/pi), and times 0.044715
    if constexpr (precision == Precision::full) {
      return damped<precision>(x, exponential(-x * fused(cubic, x * x, linear)));
    } else {
      constexpr float linear_2 = -log2_e * linear, cubic_2 = -log2_e * cubic;
      return damped<precision>(x, quick_power(x * fused(cubic_2, x * x, linear_2)));
    }
  }
};

// A copy, bit by bit.
struct Copy {
  static constexpr bool light = true;
  template <class T>
  PENSTOCK_HD T operator()(T x) const {
    return x;
  }
};

}  // namespace ps::elementwise
