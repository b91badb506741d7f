// Tensor maps describe a tensor in global memory to the copy engine, for copies of boxes to and
// from shared memory (kit/tma.cuh). Encode them on the host and pass them to kernels as `const
// __grid_constant__ TensorMap`. Needs compute capability 9.0.
#pragma once

namespace ps::kit {

// Opaque; the contents are the driver's CUtensorMap. Aligned as in CUDA 13; the driver needs 64
// bytes.
struct alignas(128) TensorMap {
  unsigned char bytes[128];
};

}  // namespace ps::kit

// In C++17, which device code may use, only the type above is available.
#if __cplusplus >= 202002L

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "penstock/base/view.h"
#include "penstock/kit/swizzle.h"

namespace ps::kit {

// Interleaved layouts, with channels in slices of 16 or 32 bytes, as in NC/8HWC8.
enum class Interleave : std::uint8_t { none, b16, b32 };

// The granularity of fetches into the L2 cache.
enum class L2Promotion : std::uint8_t { none, b64, b128, b256 };

// The value of elements of a box that lie outside the tensor.
enum class Fill : std::uint8_t { zero, nan };

inline constexpr std::size_t max_map_rank = 5;
using MapExtents = std::array<std::int64_t, max_map_rank>;

// Dimensions are in the view's order, outermost first, here and in the coordinates of kit/tma.cuh.
struct TensorMapOptions {
  // 1 to 5 dimensions of 1 to 2^32 elements, in GPU or page-locked memory aligned to 16 bytes. The
  // innermost stride is one element; the others are multiples of 16 bytes below 2^40, or 0 to
  // broadcast. Strides of dimensions with one element are ignored. Pass fp8 tensors as u8.
  //
  // Stores write whole 16-byte chunks: if a row is not a multiple of 16 bytes, they overwrite the
  // bytes behind it, up to the next multiple.
  TensorView tensor = {};

  // The box that one copy covers: 1 to 256 elements per dimension. The innermost extent is a
  // multiple of 16 bytes and at most the swizzle's span.
  MapExtents box = {};

  // Copies every n-th element along each dimension, n from 1 to 8, so that ceil(box / n) elements
  // arrive. Without interleave the innermost n is 1.
  MapExtents element_strides = {1, 1, 1, 1, 1};

  Swizzle swizzle = Swizzle::none;
  Interleave interleave = Interleave::none;  // needs 3 dimensions; b32 needs Swizzle::b32
  L2Promotion l2_promotion = L2Promotion::none;
  Fill fill = Fill::zero;  // nan only for floating-point tensors
};

// Throws InvalidArgument naming the field and the rule that the options break. Needs no device.
void check(const TensorMapOptions& options);

// Encodes a map. Does not block, enqueue work or access the tensor. Throws InvalidArgument as
// check() does, Unsupported without CUDA, without a driver or on a GPU without tensor copies, and
// DeviceError if the driver fails.
TensorMap encode(const TensorMapOptions& options);

// The options of a map for ragged_store() (kit/piece_store.cuh) into `matrix`, a view of rank 2
// with 16-bit elements, which must have 16 more rows of memory before it. Stores never write these
// rows.
TensorMapOptions ragged_options(const TensorView& matrix);

// The options in one line, for messages.
std::string describe(const TensorMapOptions& options);

}  // namespace ps::kit

#endif
