// The yardstick kernel: one pass over the data with as much arithmetic per element as asked for.
// Demos, ladders and benchmarks use it to set compute against copies.
#pragma once

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

struct IterateOptions {
  TensorView in;
  TensorView out;  // may be `in`
  int rounds = 1;  // fused multiply-adds per element
  int blocks = 0;  // most thread blocks on a GPU, 0: enough to fill it; fewer leave SMs free
};

// out = in after `rounds` times x <- iterate_scale * x + iterate_shift. Both f32, contiguous, of
// equal size, on the stream's device. Enqueues and returns; may be captured. Throws
// InvalidArgument, Unsupported on GPUs older than 8.0.
void iterate(const IterateOptions& options, const Stream& stream);

inline constexpr float iterate_scale = 0.9990234375F;
inline constexpr float iterate_shift = 0.0009765625F;

// What `rounds` rounds make of x, rounded as the kernel does: the reference for checks.
float iterated(float x, int rounds);

}  // namespace ps
