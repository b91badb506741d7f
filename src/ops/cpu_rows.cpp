#include "ops/cpu_rows.h"

#include <cstring>

#include "ops/transform/cpu.h"

namespace ps::detail {
namespace {

void transform_row(const TransformWork& work) {
  static const CpuRange fast = transform_avx2();
  const CpuRange range = fast != nullptr ? fast : transform_baseline;
  range(work, 0, work.elements, Caching::keep);
}

}  // namespace

void widen_row(const void* from, DType type, float* to, std::size_t count) {
  if (type == DType::f32) {
    std::memcpy(to, from, count * sizeof(float));
  } else {
    transform_row({.function = Function::cast,
                   .in_type = type,
                   .out_type = DType::f32,
                   .in = {from},
                   .out = to,
                   .elements = count});
  }
}

void narrow_row(const float* from, DType type, void* to, std::size_t count) {
  if (type == DType::f32) {
    std::memcpy(to, from, count * sizeof(float));
  } else {
    transform_row({.function = Function::cast,
                   .in_type = DType::f32,
                   .out_type = type,
                   .in = {from},
                   .out = to,
                   .elements = count});
  }
}

void swiglu_row(const float* gate, const float* up, float* to, std::size_t count) {
  transform_row(
      {.function = Function::swiglu, .inputs = 2, .in = {gate, up}, .out = to, .elements = count});
}

void geglu_row(const float* gate, const float* up, float* to, std::size_t count) {
  transform_row({.function = Function::gelu_exact, .in = {gate}, .out = to, .elements = count});
  for (std::size_t i = 0; i < count; ++i) to[i] *= up[i];
}

void geglu_tanh_row(const float* gate, const float* up, float* to, std::size_t count) {
  transform_row({.function = Function::gelu_tanh, .in = {gate}, .out = to, .elements = count});
  for (std::size_t i = 0; i < count; ++i) to[i] *= up[i];
}

}  // namespace ps::detail
