// Rows of neighbouring columns on the CPU: the part that instruction sets differ in.
#pragma once

#include <cstddef>

#include "penstock/base/dtype.h"

namespace ps::resampling {

inline constexpr std::size_t past_alignment = 16;  // bytes
inline constexpr std::size_t line_bytes = 64;      // of a cache

struct BlendRow {
  void* out = nullptr;
  const void *x = nullptr, *y = nullptr;
  double w = 0;
  // As long as x and y: rows that are blended soon, which may be asked for meanwhile.
  const void *soon_x = nullptr, *soon_y = nullptr;
};

// For elements of one type, by the formulas of formula.h. Rows are contiguous and `out` is apart
// from the others; sums are f64 for f32 and f64, f32 for 16 bits.
struct RowKernels {
  using Blend = void (*)(const BlendRow& row, std::size_t count);
  Blend blend = nullptr;  // out = x + w (y - x)
  // The same past the caches; null: none. `out` and its bytes are multiples of past_alignment, and
  // `settle` orders what was written before what this thread writes next.
  Blend blend_past = nullptr;
  void (*settle)() = nullptr;
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
