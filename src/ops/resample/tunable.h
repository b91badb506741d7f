// The problems that resample may want different kernels for.
#pragma once

#include "ops/resample/work.h"

namespace ps::detail {

// The kernel of a call on a GPU: the one asked for, else the chosen one.
ResampleKernel resample_kernel(const ResampleWork& work, const Device& device);

}  // namespace ps::detail
