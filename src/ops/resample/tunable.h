// The problems that resample may want different kernels for: rows of some length, so many in all.
#pragma once

#include <cstddef>

#include "ops/resample/work.h"

namespace ps::detail {

// Number of a call's problem among resample_tunable()'s.
std::size_t resample_problem(const ResampleWork& work);

// The kernel of a call on a GPU: the one asked for, else the chosen one.
ResampleKernel resample_kernel(const ResampleWork& work, const Device& device);

}  // namespace ps::detail
