// The yardstick of the ladder: every byte is read once, and nothing else happens.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ladder::decode {

// Enqueues a read of `bytes` bytes, a multiple of 16, from each of `k` and `v`. `sink`: memory for
// one number, so that the reads have a purpose.
void enqueue_plain_read(const void* k, const void* v, std::size_t bytes, void* sink,
                        cudaStream_t stream);

}  // namespace ladder::decode
