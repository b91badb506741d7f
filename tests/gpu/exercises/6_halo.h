#pragma once

#include <cuda_runtime_api.h>

#include "penstock/base/view.h"

namespace ps::lesson {

// out = every element of `in` and its four neighbours, added up; beyond the edges there are zeros.
// Matrices of f32 in the GPU's memory, of the same shape, whose rows are multiples of 16 bytes.
void add_neighbours(const TensorView& in, const TensorView& out, cudaStream_t stream);

}  // namespace ps::lesson
