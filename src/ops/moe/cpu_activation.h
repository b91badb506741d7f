// The activations of moe() on the CPU.
#pragma once

#include <cstddef>

#include "ops/moe/work.h"

namespace ps::mixture {

// to[i] = act(gate[i], up[i])
void activate_row(const detail::MoeGate& act, const float* gate, const float* up, float* to,
                  std::size_t count);

}  // namespace ps::mixture
