// What every rung computes: for each of `heads` matrices Q, K and V of `rows` x 128 elements,
//
//   out[i] = sum over keys j of softmax(scale * Q[i] . K[j])[j] * V[j]
//
// of all keys, or with `causal` of those with j <= i. Elements are bf16 or f16, sums are floats.
#pragma once

#include <cstddef>

#include "penstock/base/view.h"

namespace ladder::attention {

constexpr unsigned dim = 128;  // of a head

struct Problem {
  // (heads, rows, 128), contiguous, aligned to 16 bytes.
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  unsigned heads = 0, rows = 0;  // at least 1
  bool causal = false;
  float scale = 0;
  // For kernels whose blocks count tiles. It is 0 before such a kernel, which sets it back to 0.
  unsigned* counter = nullptr;
  ps::MemoryView workspace{};  // of the library's own kernel
};

}  // namespace ladder::attention
