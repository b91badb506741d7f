// wgmma: a warpgroup multiplies 64 rows of A by N columns of B asynchronously and accumulates
// floats in registers. B is in shared memory, A in shared memory or registers. Needs sm_90a.
//
//   wgmma_fence();
//   for (unsigned k = 0; k < Tile::slices; ++k) multiply(d, a.slice(k), b.slice(k), k > 0);
//   wgmma_commit();
//   wgmma_wait<0>(d);  // d may be read
//
// All threads of the warpgroup call these functions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "penstock/kit/tile.h"
#include "penstock/kit/warp.cuh"

namespace ps::kit {

// Call before the first wgmma, and again after other instructions have accessed its registers.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Puts the products since the last commit into a group.
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most the `pending` youngest groups are in flight.
template <unsigned pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// The same; also keeps the compiler from reading the accumulators before the wait.
template <unsigned pending, unsigned count>
__device__ inline void wgmma_wait(float (&d)[count]) {
  wgmma_wait<pending>();
#pragma unroll
  for (unsigned i = 0; i < count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The row and column in the 64 x N product of this thread's accumulator d[i].
__device__ inline unsigned accumulator_row(unsigned i) {
  return threadIdx.x / warp_threads % 4 * 16 + i % 4 / 2 * 8 + lane_index() / 4;
}
__device__ inline unsigned accumulator_column(unsigned i) {
  return i / 4 * 8 + lane_index() % 4 * 2 + i % 2;
}

namespace detail {

template <class Element>
constexpr bool is_byte_float =
    std::is_same_v<Element, __nv_fp8_e4m3> || std::is_same_v<Element, __nv_fp8_e5m2>;

template <class A, class B>
constexpr bool multiplies =
    (is_byte_float<A> && is_byte_float<B>) ||
    (std::is_same_v<A, B> && (std::is_same_v<A, __half> || std::is_same_v<A, __nv_bfloat16>));

template <unsigned n>
struct Wgmma;

// Both operands in shared memory.
#define PENSTOCK_WGMMA_SHARED(n, kind, major, a_, b_, add_)                                   \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_                                   \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n kind " " PENSTOCK_WGMMA_NAMES_##n \
               ", " a_ ", " b_ ", add, 1, 1" major ";\n}"                                     \
               : PENSTOCK_WGMMA_REGISTERS_##n                                                 \
               : "l"(a), "l"(b), "r"(add), "n"(a_mn), "n"(b_mn))

// A in registers.
#define PENSTOCK_WGMMA_REGISTER(n, kind, major, a0, a1, a2, a3, b_, add_)                     \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_                                   \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n kind " " PENSTOCK_WGMMA_NAMES_##n \
               ", {" a0 ", " a1 ", " a2 ", " a3 "}, " b_ ", add, 1, 1" major ";\n}"           \
               : PENSTOCK_WGMMA_REGISTERS_##n                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(b_mn))

// The element types of A and B choose the instruction.
#define PENSTOCK_WGMMA_KINDS(n, form, majors, ...)                                             \
  if constexpr (std::is_same_v<A, __nv_bfloat16>) {                                            \
    form(n, "k16.f32.bf16.bf16", majors, __VA_ARGS__);                                         \
  } else if constexpr (std::is_same_v<A, __half>) {                                            \
    form(n, "k16.f32.f16.f16", majors, __VA_ARGS__);                                           \
  } else if constexpr (std::is_same_v<A, __nv_fp8_e4m3> && std::is_same_v<B, __nv_fp8_e4m3>) { \
    form(n, "k32.f32.e4m3.e4m3", "", __VA_ARGS__);                                             \
  } else if constexpr (std::is_same_v<A, __nv_fp8_e4m3>) {                                     \
    form(n, "k32.f32.e4m3.e5m2", "", __VA_ARGS__);                                             \
  } else if constexpr (std::is_same_v<B, __nv_fp8_e4m3>) {                                     \
    form(n, "k32.f32.e5m2.e4m3", "", __VA_ARGS__);                                             \
  } else {                                                                                     \
    form(n, "k32.f32.e5m2.e5m2", "", __VA_ARGS__);                                             \
  }

#define PENSTOCK_WGMMA_SHAPE(n, p0, p1, p2, p3, p4, p5, p6)                                       \
  template <>                                                                                     \
  struct Wgmma<n> {                                                                               \
    template <class A, class B, int a_mn, int b_mn>                                               \
    __device__ static void shared(float (&d)[n / 2], std::uint64_t a, std::uint64_t b, int add) { \
      PENSTOCK_WGMMA_KINDS(n, PENSTOCK_WGMMA_SHARED, ", " p3 ", " p4, p0, p1, p2)                 \
    }                                                                                             \
    template <class A, class B, int b_mn>                                                         \
    __device__ static void registers(float (&d)[n / 2], const std::uint32_t (&a)[4],              \
                                     std::uint64_t b, int add) {                                  \
      PENSTOCK_WGMMA_KINDS(n, PENSTOCK_WGMMA_REGISTER, ", " p6, p0, p1, p2, p3, p4, p5)           \
    }                                                                                             \
  };

#include "penstock/kit/wgmma_shapes.inc"

#undef PENSTOCK_WGMMA_SHAPE
#undef PENSTOCK_WGMMA_KINDS
#undef PENSTOCK_WGMMA_REGISTER
#undef PENSTOCK_WGMMA_SHARED

template <class B, unsigned n>
PENSTOCK_HD constexpr void check_product() {
  static_assert(n % 8 == 0 && n >= 8 && n <= 256, "N is a multiple of 8, from 8 to 256");
  static_assert(B::rows >= n, "B's tile has fewer columns than the product");
}

}  // namespace detail

// Starts d = a * b, or d += a * b with `add`. d is 64 x N, where N is 2 * count. Do not access d or
// write to the tiles before wgmma_wait().
template <class A, class B, unsigned count>
__device__ inline void multiply(float (&d)[count], Operand<A> a, Operand<B> b, bool add) {
  constexpr unsigned n = 2 * count;
  detail::check_product<B, n>();
  static_assert(A::rows >= 64, "A's tile has fewer than 64 rows");
  static_assert(detail::multiplies<typename A::Element, typename B::Element>,
                "both bf16, both f16, or both of the 8-bit floats");
  detail::Wgmma<n>::template shared<typename A::Element, typename B::Element, A::major == Major::mn,
                                    B::major == Major::mn>(d, a.bits, b.bits, add);
}

// The same with A in registers: 64 rows by 32 bytes of K, in the layout of the accumulators of a
// 64 x 16 product whose pairs are packed to 16 bits.
template <class ElementA, class B, unsigned count>
__device__ inline void multiply(float (&d)[count], const std::uint32_t (&a)[4], Operand<B> b,
                                bool add) {
  constexpr unsigned n = 2 * count;
  detail::check_product<B, n>();
  static_assert(detail::multiplies<ElementA, typename B::Element>,
                "both bf16, both f16, or both of the 8-bit floats");
  detail::Wgmma<n>::template registers<ElementA, typename B::Element, B::major == Major::mn>(
      d, a, b.bits, add);
}

}  // namespace ps::kit
