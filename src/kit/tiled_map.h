// The arguments of the driver's call that encodes a tensor map, before the driver sees them.
#pragma once

#include <array>
#include <cstdint>

#include "penstock/kit/tensor_map.h"

namespace ps::kit::detail {

// In the driver's order: innermost dimension first. The innermost stride is not among the strides.
struct TiledMap {
  int type = 0;  // the driver's number of the element type
  unsigned rank = 0;
  void* address = nullptr;
  std::array<std::uint64_t, max_map_rank> dimensions{};
  std::array<std::uint64_t, max_map_rank - 1> stride_bytes{};
  std::array<std::uint32_t, max_map_rank> box{};
  std::array<std::uint32_t, max_map_rank> element_strides{};
};

// Throws InvalidArgument as check() does.
TiledMap tiled_map(const TensorMapOptions& options);

// Asks the driver; throws Unsupported or DeviceError.
TensorMap encode_tiled(const TiledMap& map, const TensorMapOptions& options);

}  // namespace ps::kit::detail
