// The problems that gemm may want different kernels for: classes of sizes.
#pragma once

#include <cstddef>

#include "ops/gemm/choice.h"
#include "ops/gemm/work.h"

namespace ps::detail {

GemmSize gemm_size(const GemmWork& work);

// Number of a call's problem among gemm_tunable()'s.
std::size_t gemm_problem(const GemmSize& size, std::size_t multiprocessors);

// The kernel of a call on a GPU: the one asked for, else the chosen one.
GemmKernel gemm_kernel(const GemmWork& work, GemmKernel asked, const Device& device);

}  // namespace ps::detail
