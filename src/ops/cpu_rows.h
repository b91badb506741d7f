// Rows of numbers on the CPU: to f32 and back, and activations, by the instructions that transform
// has for them.
#pragma once

#include <cstddef>

#include "penstock/base/dtype.h"

namespace ps::detail {

void widen_row(const void* from, DType type, float* to, std::size_t count);
void narrow_row(const float* from, DType type, void* to, std::size_t count);

// to[i] = silu(gate[i]) * up[i]
void swiglu_row(const float* gate, const float* up, float* to, std::size_t count);

// to[i] = gelu(gate[i]) * up[i]: with erf, and with the approximation by tanh.
void geglu_row(const float* gate, const float* up, float* to, std::size_t count);
void geglu_tanh_row(const float* gate, const float* up, float* to, std::size_t count);

}  // namespace ps::detail
