// A kernel with adjustable arithmetic per element, for demonstrations and benchmarks that balance
// computation against copies.
#pragma once

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

struct IterateOptions {
  TensorView in;
  TensorView out;  // may be `in`
  int rounds = 1;  // fused multiply-adds per element
  int blocks = 0;  // at most this many thread blocks on a GPU; 0: enough to fill it
};

// Applies x = iterate_scale * x + iterate_shift `rounds` times to each element. `in` and `out` are
// f32, contiguous, of equal size and on the stream's device. Enqueues and returns; may be captured.
// Throws InvalidArgument, and Unsupported on GPUs below compute capability 8.0.
void iterate(const IterateOptions& options, const Stream& stream);

inline constexpr float iterate_scale = 0.9990234375F;
inline constexpr float iterate_shift = 0.0009765625F;

// The result for one element, computed on the host, bit for bit equal to the kernel's.
float iterated(float x, int rounds);

}  // namespace ps
