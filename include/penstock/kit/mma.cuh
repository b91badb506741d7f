// mma.sync: a warp multiplies a 16x16 tile by a 16x8 tile and adds the product to a 16x8 tile of
// floats. Needs compute capability 8.0. Lane l holds columns 2(l%4) and 2(l%4)+1 of the result: row
// l/4 in d[0] and d[1], row l/4+8 in d[2] and d[3]. load_matrices() loads `a` and `b` in their
// layout.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace ps::kit {

// d += a * b. Element: __half or __nv_bfloat16.
template <class Element>
__device__ inline void mma(float (&d)[4], const std::uint32_t (&a)[4],
                           const std::uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    static_assert(std::is_same_v<Element, __half>, "mma multiplies __half or __nv_bfloat16");
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

}  // namespace ps::kit
