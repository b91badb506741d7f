// Rows of neighbouring columns on the CPU: the part that instruction sets differ in.
#pragma once

#include <cstddef>

#include "penstock/base/dtype.h"

namespace ps::resampling {

// For elements of one type, by the formulas of formula.h. Rows are contiguous and `out` is apart
// from the others; sums are f64 for f32 and f64, f32 for 16 bits.
struct RowKernels {
  using Blend = void (*)(void* out, const void* x, const void* y, double w, std::size_t count);
  Blend blend = nullptr;  // out = x + w (y - x)
  Blend slerp = nullptr;  // of quaternions; count is of elements
  // sum += w row
  void (*add)(void* sum, const void* row, double w, std::size_t count) = nullptr;
  void (*round)(void* out, const void* sum, std::size_t count) = nullptr;  // out = sum
};

// The fastest that this CPU has. Integers have none: they are only copied.
RowKernels row_kernels(DType type);

// Correct everywhere; fast nowhere.
RowKernels baseline_rows(DType type);

// With AVX2, FMA and F16C: all but slerp; nothing where this CPU or compiler has them not.
RowKernels avx2_rows(DType type);

}  // namespace ps::resampling
