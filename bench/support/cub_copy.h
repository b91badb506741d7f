// CUB's DeviceTransform with the identity: a copy, as the library would do it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace bench {

std::string cub_version();

// Element by element, or in vectors of 16 bytes where `vectors` says so (`count` a multiple of 4).
// Throws std::runtime_error.
void cub_copy(const float* in, float* out, std::size_t count, bool vectors, cudaStream_t stream);

}  // namespace bench
