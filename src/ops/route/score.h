// The arithmetic of route(), for the CPU and GPUs alike. Both give the same bits: products that are
// added to something are fused by name, so that compilers have nothing to contract, and every sum
// has a defined order.
//
// Sums over all experts: lane l of 32 adds up experts l, l + 32, l + 64, ... in this order. Then
// the sums of lanes l and l xor 16 are added, and likewise with 8, 4, 2 and 1. Sums over the chosen
// experts are in the order of choice.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "ops/transform/functions.h"
#include "penstock/kit/config.h"
#include "penstock/ops/route.h"

namespace ps::routing {

inline constexpr unsigned lanes = 32;
inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float largest_finite = std::numeric_limits<float>::max();

PENSTOCK_HD inline std::uint32_t bits_of(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

PENSTOCK_HD inline float float_of(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

// Correctly rounded, whatever options the device code is compiled with.
PENSTOCK_HD inline float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

// The logit to compute with: finite, or -infinity if the expert cannot be chosen.
PENSTOCK_HD inline float usable(float logit) {
  if (!(logit > -infinity)) return -infinity;  // NaN too
  return logit < largest_finite ? logit : largest_finite;
}

// Scores are compared by keys: integers in the order of the scores. 0 and -0 have the same key.
// The key 0 belongs to no score: it marks experts and groups that cannot be chosen.
inline constexpr std::uint32_t no_key = 0;

PENSTOCK_HD inline std::uint32_t key_of(float score) {
  constexpr std::uint32_t sign = 0x80000000U;
  const std::uint32_t bits = score == 0 ? 0 : bits_of(score);
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

// The score of a key other than no_key.
PENSTOCK_HD inline float score_of(std::uint32_t key) {
  constexpr std::uint32_t sign = 0x80000000U;
  return float_of((key & sign) != 0 ? key & ~sign : ~key);
}

// Of an expert with this compared score, which may be NaN.
PENSTOCK_HD inline std::uint32_t expert_key(float score) {
  return score > -infinity ? key_of(score) : no_key;
}

// Of a group, from the keys of its two best experts.
PENSTOCK_HD inline std::uint32_t group_key(std::uint32_t best, std::uint32_t second) {
  if (second == no_key) return best;
  return key_of(score_of(best) + score_of(second));
}

// e^x for x <= 0, within one unit in the last place. 0 for NaN and below -87, shortly before f32
// would lose digits.
PENSTOCK_HD inline float exponential(float x) {
  using elementwise::fused;
  if (!(x >= -87.0F)) return 0;
  // x = n ln 2 + r. Adding 1.5 * 2^23 rounds to an integer, which is then in the lowest bits.
  constexpr float rounder = 12582912.0F;
  const float shifted = fused(x, elementwise::log2_e, rounder);
  const float n = shifted - rounder;
  // ln 2 in two parts; the product with the first one is exact.
  // NOLINTNEXTLINE(modernize-use-std-numbers)
  const float r = fused(n, -1.42860677e-6F, fused(n, -0.693145752F, x));
  // e^r = 1 + r + r^2 q(r), q fitted by Chebyshev interpolation.
  float q = fused(0.00139262504F, r, 0.00836323295F);
  q = fused(q, r, 0.0416665524F);
  q = fused(q, r, 0.166665763F);
  q = fused(q, r, 0.5F);
  const float power = fused(fused(q, r, 1.0F), r, 1.0F);
  // Times 2^n, in the exponent's bits; the other bits of `shifted` are shifted out.
  return float_of(bits_of(power) + (bits_of(shifted) << 23));
}

// 1 / (1 + e^-x); 0 below -87.
PENSTOCK_HD inline float sigmoid(float x) {
  const float power = exponential(x < 0 ? x : -x);
  return quotient(x < 0 ? power : 1.0F, 1.0F + power);
}

// The compared score: softmax keeps the order of the logits, so there it is the logit itself.
// `bias` is 0 if there is none.
PENSTOCK_HD inline std::uint32_t compared_key(RouteScoring scoring, float usable_logit,
                                              float bias) {
  if (!(usable_logit > -infinity)) return no_key;
  return expert_key(scoring == RouteScoring::sigmoid ? sigmoid(usable_logit) + bias : usable_logit);
}

// The weight of a chosen expert, before it is divided by sums. `largest`: of the usable logits, for
// softmax.
PENSTOCK_HD inline float raw_weight(RouteScoring scoring, float usable_logit, float largest) {
  return scoring == RouteScoring::sigmoid ? sigmoid(usable_logit)
                                          : exponential(usable_logit - largest);
}

}  // namespace ps::routing
