// What the tensor cores do when nothing else has to happen: the ceiling of every product.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "gemm/support/matrices.h"
#include "penstock/host/stream.h"
#include "support/context.h"

namespace gemm {

struct TensorRounds {
  unsigned rounds = 0;
  double flops = 0;
};

// Two lengths of work for the tensor cores alone: about a product of this size, which heats the GPU
// as much, and twice that. Their difference is free of what a launch takes to begin and to end.
std::vector<TensorRounds> tensor_rounds(const Size& size);

// FLOPs per second, from the seconds that the two lengths took.
double tensor_ceiling(const std::vector<TensorRounds>& lengths, const std::vector<double>& seconds);

// Enqueues `rounds` of wgmma on every multiprocessor, on random bf16 numbers that stay in shared
// memory. Compute capability 9.0.
void enqueue_tensor_work(unsigned rounds, cudaStream_t stream);

// Measures the ceiling with work about that of a product of this size, and adds it to the ladder's
// facts. FLOPs per second; 0 without compute capability 9.0, where nothing is measured.
// Synchronises.
double measure_tensor_ceiling(ladder::Context& context, const ps::Stream& stream, const Size& size);

}  // namespace gemm
