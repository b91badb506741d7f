// Kernels around a product: random numbers in, NaN before, a look at every element after.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace gemm {

// Uniform in [-1, 1], the same for the same seed.
void fill_random(__nv_bfloat16* to, std::size_t count, std::uint32_t seed, cudaStream_t stream);
void fill_random(__half* to, std::size_t count, std::uint32_t seed, cudaStream_t stream);

// Counts into `*found`, in device memory, which must be 0 before.
void count_nan(const __nv_bfloat16* in, std::size_t count, unsigned long long* found,
               cudaStream_t stream);
void count_nan(const __half* in, std::size_t count, unsigned long long* found, cudaStream_t stream);

}  // namespace gemm
