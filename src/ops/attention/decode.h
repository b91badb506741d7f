// The decode kernels of attention() on a GPU: for few queries per sequence. They divide the keys of
// every sequence among blocks of threads, whose results a second kernel combines in a fixed order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/attention/work.h"
#include "penstock/base/place.h"

namespace ps::detail {

// They throw DeviceError if a launch fails. The functions of one type are in files of their own.
void attention_decode_portable_bf16(const AttentionWork& work, cudaStream_t stream);
void attention_decode_portable_f16(const AttentionWork& work, cudaStream_t stream);
void attention_decode_portable_f32(const AttentionWork& work, cudaStream_t stream);
// If attention_decode_fits_sm90() and there is a key.
void attention_decode_sm90_bf16(const AttentionWork& work, Place place, cudaStream_t stream);
void attention_decode_sm90_f16(const AttentionWork& work, Place place, cudaStream_t stream);

// The same for work with new rows, which they write before they read them.
void attention_append_decode_portable_bf16(const AttentionWork& work, cudaStream_t stream);
void attention_append_decode_portable_f16(const AttentionWork& work, cudaStream_t stream);
void attention_append_decode_portable_f32(const AttentionWork& work, cudaStream_t stream);
void attention_append_decode_sm90_bf16(const AttentionWork& work, Place place, cudaStream_t stream);
void attention_append_decode_sm90_f16(const AttentionWork& work, Place place, cudaStream_t stream);

// Combines what `parts` parts left in the workspace. `keys` is the size of their blocks of keys.
void attention_decode_combine(const AttentionWork& work, std::int32_t parts, std::int32_t keys,
                              cudaStream_t stream);

}  // namespace ps::detail
