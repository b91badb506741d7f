// ldmatrix for emulated kernels.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulated/block.h"

namespace ps::kit {

template <bool transposed = false, unsigned tiles>
void load_matrices(std::uint32_t (&to)[tiles], const void* row) {
  static_assert(tiles == 2 || tiles == 4);
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    std::fprintf(stderr, "load_matrices: misaligned row %p\n", row);
    std::abort();
  }
  emulated::among_lanes(~0U, row, "ldmatrix", [&](emulated::Block& block) {
    const unsigned lane = block.fiber().lane();
    for (unsigned tile = 0; tile < tiles; ++tile) {
      std::uint16_t pair[2];
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned along = 2 * (lane % 4) + i, across = lane / 4;
        const auto* const from =
            block.shown_by<const std::uint16_t*>(8 * tile + (transposed ? along : across));
        pair[i] = from[transposed ? across : along];
      }
      std::memcpy(&to[tile], pair, sizeof(pair));
    }
    return 0;
  });
}

}  // namespace ps::kit
