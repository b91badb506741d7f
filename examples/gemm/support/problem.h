// The product that every rung computes: C (m x n) = A (m x k) * B^T, B given as n x k, as the
// weights of a linear layer are. bf16 in memory, float sums.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>

namespace gemm {

struct Problem {
  const __nv_bfloat16* a = nullptr;
  const __nv_bfloat16* b = nullptr;
  __nv_bfloat16* c = nullptr;
  unsigned m = 0, n = 0, k = 0;
};

}  // namespace gemm
