// The ways to run a prebuilt function, one a place. Arguments are already checked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "penstock/base/dtype.h"
#include "penstock/host/stream.h"
#include "penstock/ops/transform.h"

namespace ps::detail {

enum class Function : std::uint8_t {
  cast,
  scale,
  axpby,
  add,
  mul,
  swiglu,
  gelu_exact,
  gelu_tanh,
};

struct TransformWork {
  Function function = Function::cast;
  DType in_type = DType::f32, out_type = DType::f32;
  unsigned inputs = 1;
  std::array<const void*, 4> in{};
  void* out = nullptr;  // equal to one of `in` or apart from them
  std::size_t elements = 0;
  float a = 1, b = 1;
};

void transform_cpu(const TransformWork& work, const Stream& stream);

// On a GPU of 8.0 or later. Throws DeviceError.
void transform_portable(const TransformWork& work, const Stream& stream);

// On a GPU of 9.0. False where the operands' addresses do not suit bulk copies: nothing was done.
bool transform_sm90(const TransformWork& work, const Stream& stream);

// By one of the two; by the first where the second's addresses are not to be had.
void transform_gpu(const TransformWork& work, TransformKernel kernel, const Stream& stream);

}  // namespace ps::detail
