// Launches the kernels of the rungs, and says what they take of a multiprocessor.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/support/rung.h"
#include "penstock/host/cuda.h"
#include "penstock/kit/launch.cuh"
#include "support/kernel_use.cuh"

namespace ladder::attention {

// One block per `queries` queries of each head. Neighbouring blocks have the same head.
inline dim3 grid_of(const Problem& p, unsigned queries) {
  return dim3((p.rows + queries - 1) / queries, p.heads);
}

template <class Element>
constexpr ps::DType type_of = std::is_same_v<Element, __half> ? ps::DType::f16 : ps::DType::bf16;

// "2 stages, f16", for "2 stages".
template <class Element>
std::string label_of(const std::string& what) {
  const char* const type = std::is_same_v<Element, __half> ? "f16" : "bf16";
  return what.empty() ? type : what + ", " + type;
}

}  // namespace ladder::attention
