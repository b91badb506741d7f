// The activations of moe() on GPUs.
#pragma once

#include "ops/moe/work.h"
#include "penstock/kit/math.cuh"

namespace ps::detail {

// 1 / (1 + exp(-value)). The approximate form has an error of about 2^-21, far below the rounding
// of 16-bit results; f32 takes the exact one.
template <bool exact>
__device__ inline float sigmoid(float value) {
  if constexpr (exact) return 1.F / (1.F + expf(-value));
  return kit::reciprocal_approximate(1.F + kit::exp2_approximate(value * -1.4426950408889634F));
}

// act(gate, up).
template <bool exact>
__device__ inline float activated(const MoeGate& act, float gate, float up) {
  switch (act.activation) {
    case MoeActivation::swiglu:
      return gate * sigmoid<exact>(gate) * up;
    case MoeActivation::geglu:
      return 0.5F * gate * (1.F + erff(gate * 0.70710678118654752F)) * up;
    case MoeActivation::geglu_tanh: {
      // gelu by tanh, written as a sigmoid: (1 + tanh(z)) / 2 = sigmoid(2 z).
      const float z = 0.79788456080286536F * (gate + 0.044715F * gate * gate * gate);
      return gate * sigmoid<exact>(2.F * z) * up;
    }
    case MoeActivation::clamped_swiglu:
      break;
  }
  // NaN passes through, as in torch.clamp.
  const float g = gate > act.limit ? act.limit : gate;
  const float u = up > act.limit ? act.limit : up < -act.limit ? -act.limit : up;
  return g * sigmoid<exact>(act.alpha * g) * (u + 1.F);
}

}  // namespace ps::detail
