// What append_kv() computes on the CPU for a head's row, by instruction set.
#pragma once

#include <cstddef>

namespace ps::detail {

// Rotates `count` pairs with the bits of rotate_pair(): elements i and i + count with
// RotaryPairs::halves, else 2 i and 2 i + 1.
using RotateRow = void (*)(const float* from, const float* cos, const float* sin, std::size_t count,
                           float* to);
struct RotateRows {
  RotateRow halves = nullptr, neighbours = nullptr;
};

RotateRows rotate_rows_baseline();
// Null where the compiler or the CPU lacks the instructions.
RotateRows rotate_rows_avx2();

}  // namespace ps::detail
