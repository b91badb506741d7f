// For the few examples that call the CUDA runtime themselves.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace ladder {

inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

}  // namespace ladder
