// The matrices of a problem as tensor maps and the engine want them.
#pragma once

#include <cuda_runtime.h>

#include "gemm/support/problem.h"
#include "penstock/base/view.h"
#include "penstock/kit/launch.cuh"

namespace gemm {

inline int current_device() {
  int device = 0;
  ps::kit::detail::check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

inline ps::TensorView matrix(const __nv_bfloat16* data, unsigned rows, unsigned columns) {
  return ps::TensorView(const_cast<__nv_bfloat16*>(data), ps::DType::bf16, {rows, columns},
                        {ps::Memory::device, current_device()});
}
inline ps::TensorView view_a(const Problem& p) { return matrix(p.a, p.m, p.k); }
inline ps::TensorView view_b(const Problem& p) { return matrix(p.b, p.n, p.k); }
inline ps::TensorView view_c(const Problem& p) { return matrix(p.c, p.m, p.n); }

}  // namespace gemm
