// The kernels of the CPU's matrix product: one per instruction set and type.
//
// A kernel computes the dot products of some rows with some columns. Each is summed in an order
// that depends on the depth alone, so that a result has the same bits whatever other rows and
// columns are computed with it. Kernels differ in this order, and so CPUs may differ in bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "penstock/base/dtype.h"

namespace ps::detail {

using RowPointers = std::span<const std::byte* const>;

struct ProductKernel {
  // The bytes that so many rows of `depth` elements need when packed.
  std::size_t (*packed_bytes)(std::size_t rows, std::size_t depth);
  // Copies rows to `to`, which is aligned to 64, in the order in which multiply() reads them.
  void (*pack)(RowPointers rows, std::size_t depth, std::byte* to);
  // sums[r * stride + c] = the dot product of packed row r and column c, whose elements are
  // contiguous.
  void (*multiply)(const std::byte* packed, std::size_t rows, RowPointers columns,
                   std::size_t depth, float* sums, std::size_t stride);
};

enum class InstructionSet : std::uint8_t { baseline, avx2, avx512, avx512_bf16, amx };

// Null where this CPU or the compiler lacks the instructions, or where a set has none of its own
// for the type: avx512_bf16 and amx are for bf16 alone.
const ProductKernel* product_kernel(InstructionSet set, DType type);

// The fastest that this CPU has. Types: f32, f16, bf16.
const ProductKernel& best_product_kernel(DType type);

// What the instruction sets' files have for a type, or null. The caller makes sure that the CPU
// has the instructions.
const ProductKernel* product_baseline(DType type);
const ProductKernel* product_avx2(DType type);
const ProductKernel* product_avx512(DType type);
const ProductKernel* product_avx512_bf16(DType type);
const ProductKernel* product_amx(DType type);

}  // namespace ps::detail
