// The problems that transform may want different kernels for: its functions by type.
#pragma once

#include <cstddef>

#include "ops/transform/transform.h"
#include "penstock/ops/transform.h"

namespace ps::detail {

// Number of a call's problem among transform_tunable()'s. No cast to the same type: that is a copy.
std::size_t transform_problem(const TransformWork& work);

// The kernel of a call on a GPU: the one asked for, else the chosen one.
TransformKernel transform_kernel(const TransformWork& work, TransformKernel asked,
                                 const Device& device);

}  // namespace ps::detail
