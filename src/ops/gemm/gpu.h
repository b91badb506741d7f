// The launches of gemm() on a GPU, which is current.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/gemm/work.h"
#include "penstock/base/place.h"

namespace ps::detail {

// `kernel` is one of gemm_shapes, and gemm_fits_sm90(work). One function per type, each in a file
// of its own.
void gemm_sm90_bf16(const GemmWork& work, GemmKernel kernel, Place place, cudaStream_t stream);
void gemm_sm90_f16(const GemmWork& work, GemmKernel kernel, Place place, cudaStream_t stream);

void gemm_portable(const GemmWork& work, cudaStream_t stream);

}  // namespace ps::detail
