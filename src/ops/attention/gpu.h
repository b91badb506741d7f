// The kernels of attention() on a GPU. Needs CUDA's headers.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/attention/work.h"
#include "penstock/base/place.h"

namespace ps::detail {

// They throw DeviceError if a launch fails. attention_portable() calls the function of the type;
// these are in files of their own.
void attention_portable(const AttentionWork& work, cudaStream_t stream);
void attention_portable_bf16(const AttentionWork& work, cudaStream_t stream);
void attention_portable_f16(const AttentionWork& work, cudaStream_t stream);
void attention_portable_f32(const AttentionWork& work, cudaStream_t stream);
// If attention_fits_sm90().
void attention_sm90(const AttentionWork& work, Place place, cudaStream_t stream);

}  // namespace ps::detail
