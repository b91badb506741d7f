// Tensor maps of a problem, whose boxes are rows of one head in the layout of the tiles in shared
// memory. Rows beyond the last of a head are loaded as zeros, and are not stored.
#pragma once

#include <cstdint>
#include <string>

#include "attention/support/launch.cuh"
#include "attention/support/rows.cuh"
#include "penstock/kit/tensor_map.h"
#include "penstock/kit/tma.cuh"

namespace ladder::attention {

struct Maps {
  kit::TensorMap q, k, v, out;
};

// Boxes of `queries` rows of Q, `keys` rows of K and V, and 16 of the result; 64 columns each.
template <class Element>
Maps maps_of(const Problem& p, unsigned queries, unsigned keys) {
  const ps::Place place{ps::Memory::device, ladder::current_device()};
  const auto map = [&](const void* data, std::int64_t rows) {
    const ps::TensorView view(const_cast<void*>(data), type_of<Element>, {p.heads, p.rows, dim},
                              place);
    return kit::encode({.tensor = view,
                        .box = {1, rows, 64},
                        .swizzle = kit::Swizzle::b128,
                        .l2_promotion = kit::L2Promotion::b256});
  };
  return {map(p.q, queries), map(p.k, keys), map(p.v, keys), map(p.out, 16)};
}

// One thread asks for a tile, the rows from `row` on of a head. Its bytes complete on `full`.
template <class Element, unsigned rows>
__device__ void load_tile(unsigned char* tile, const kit::TensorMap& map, kit::Barrier& full,
                          kit::CacheHint hint, unsigned head, unsigned row) {
  using Tile = RowTile<Element, rows>;
#pragma unroll
  for (unsigned panel = 0; panel < Tile::panels; ++panel) {
    kit::tensor_load(tile + panel * Tile::panel_bytes, map, full, hint, head, row, 64 * panel);
  }
}

}  // namespace ladder::attention
