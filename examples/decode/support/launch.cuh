// The launch of a rung's main kernel, and what it takes of a multiprocessor.
#pragma once

#include "decode/support/attend.cuh"
#include "decode/support/rung.h"
#include "penstock/host/cuda.h"
#include "penstock/kit/launch.cuh"
#include "support/kernel_use.cuh"

namespace ladder::decode {

inline kit::LaunchOptions launch_options(dim3 grid = 1) {
  return {.grid = grid, .block = threads, .shared_bytes = sizeof(Shared)};
}

template <auto kernel>
ladder::KernelUse use_of() {
  return ladder::kernel_use(kernel, threads, sizeof(Shared));
}

}  // namespace ladder::decode
