#include "ops/moe/cpu_activation.h"

#include <cmath>

#include "ops/cpu_rows.h"

namespace ps::mixture {
namespace {

float clamped_swiglu(const detail::MoeGate& act, float gate, float up) {
  // NaN passes through, as in torch.clamp.
  const float g = gate > act.limit ? act.limit : gate;
  const float u = up > act.limit ? act.limit : up < -act.limit ? -act.limit : up;
  return g / (1.F + std::exp(-act.alpha * g)) * (u + 1.F);
}

}  // namespace

void activate_row(const detail::MoeGate& act, const float* gate, const float* up, float* to,
                  std::size_t count) {
  switch (act.activation) {
    case MoeActivation::swiglu:
      return detail::swiglu_row(gate, up, to, count);
    case MoeActivation::geglu:
      return detail::geglu_row(gate, up, to, count);
    case MoeActivation::geglu_tanh:
      return detail::geglu_tanh_row(gate, up, to, count);
    case MoeActivation::clamped_swiglu:
      for (std::size_t i = 0; i < count; ++i) to[i] = clamped_swiglu(act, gate[i], up[i]);
  }
}

}  // namespace ps::mixture
