// Tensor maps: what the copy engine is told of a tensor in global memory, for copies of boxes of it
// to and from shared memory (kit/tma.cuh). Made on the host and given to kernels as
// `const __grid_constant__ TensorMap`. Compute capability 9.0.
#pragma once

namespace ps::kit {

// Opaque: its bytes are the driver's. The same type in builds with and without CUDA. The driver
// asks for an alignment of 64 bytes, CUDA's own type has 128 from 13.0 on.
struct alignas(128) TensorMap {
  unsigned char bytes[128];
};

}  // namespace ps::kit

// Device code in C++17 sees the map alone; making one takes C++20.
#if __cplusplus >= 202002L

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "penstock/base/view.h"
#include "penstock/kit/swizzle.h"

namespace ps::kit {

// Channels in slices of 16 or 32 bytes, as in NC/8HWC8.
enum class Interleave : std::uint8_t { none, b16, b32 };

// Bytes that the L2 cache fetches at least.
enum class L2Promotion : std::uint8_t { none, b64, b128, b256 };

// What elements of a box beyond the tensor read as.
enum class Fill : std::uint8_t { zero, nan };

inline constexpr std::size_t max_map_rank = 5;
using MapExtents = std::array<std::int64_t, max_map_rank>;

// Dimensions are in the view's order everywhere, here and for coordinates in kernels: outermost
// first, the last one innermost. The copy engine's reversed order is made inside.
struct TensorMapOptions {
  // 1 to 5 dimensions of 1 to 2^32 elements, in memory of a GPU or page-locked memory, at a
  // multiple of 16 bytes. The innermost stride is one element; the others are multiples of 16 bytes
  // below 2^40, in any order, 0 for a broadcast; that of a dimension of one element does not count.
  // 8-bit floating-point numbers are given as u8.
  //
  // Stores write whole 16-byte chunks: where the innermost dimension is no multiple of 16 bytes,
  // they change what lies behind its end, up to the next such multiple.
  TensorView tensor = {};

  // Elements that a copy traverses: 1 to 256 along each dimension, whole 16 bytes along the
  // innermost, and no more of them than the swizzle's span.
  MapExtents box = {};

  // Every n-th element is copied, 1 to 8, so that ceil(box / n) elements arrive. The innermost
  // dimension has no such step without interleave.
  MapExtents element_strides = {1, 1, 1, 1, 1};

  Swizzle swizzle = Swizzle::none;
  Interleave interleave = Interleave::none;  // from 3 dimensions on; b32 with Swizzle::b32 only
  L2Promotion l2_promotion = L2Promotion::none;
  Fill fill = Fill::zero;  // nan for floating-point tensors
};

// Throws InvalidArgument, naming the field and the rule, for options that make no tensor map.
// Touches no device and no memory.
void check(const TensorMapOptions& options);

// The map. Throws InvalidArgument as check() does, Unsupported where there is no CUDA, no driver or
// no tensor copies in the GPU, and DeviceError when the driver refuses nevertheless. Neither blocks
// nor enqueues anything; the memory's contents do not matter.
TensorMap encode(const TensorMapOptions& options);

// All of it in one line, for messages.
std::string describe(const TensorMapOptions& options);

}  // namespace ps::kit

#endif
