// A call of gemm() with checked arguments, and the ways to run it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/base/dtype.h"
#include "penstock/host/stream.h"
#include "penstock/ops/gemm.h"

namespace ps::detail {

struct GemmWork {
  std::int64_t m = 0, n = 0, k = 0;  // m and n are at least 1
  DType type = DType::bf16;
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  std::int64_t a_row = 0, b_row = 0, out_row = 0;  // strides, in elements
};

// Whether the sm90 kernels can run the call: tensor maps describe its matrices.
bool gemm_fits_sm90(const GemmWork& work);

void gemm_cpu(const GemmWork& work, const Stream& stream);

// `kernel` is not `best`, and can run the call.
void gemm_gpu(const GemmWork& work, GemmKernel kernel, const Stream& stream);

}  // namespace ps::detail
