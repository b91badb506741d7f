// What the GPU's two ways share.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/transform/dispatch.h"
#include "penstock/ops/transform/tuning.h"
#include "penstock/ops/transform/vector.cuh"

namespace ps::elementwise {

// Copies are the driver's.
using GpuTypes = ElementTypes<float, __half, __nv_bfloat16, false>;

// The table's entry for these operands.
template <class Function, class Out, class... In>
using BestFor = Best<sizeof...(In), 16 / vector_width<Out, In...>(), Light<Function>>;

}  // namespace ps::elementwise
