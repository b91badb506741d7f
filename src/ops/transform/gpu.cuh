// What the GPU's two ways share.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/transform/dispatch.h"
#include "penstock/ops/transform/tuning.h"
#include "penstock/ops/transform/vector.cuh"

namespace ps::elementwise {

using GpuTypes = ElementTypes<float, __half, __nv_bfloat16>;

// The table's entry for these operands.
template <class Out, class... In>
using BestFor = Best<sizeof...(In), 16 / vector_width<Out, In...>()>;

}  // namespace ps::elementwise
