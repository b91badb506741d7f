// mma.sync for emulated kernels. Products are added up one after the other in f32; the hardware
// keeps fewer digits of small ones.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "emulated/block.h"

namespace ps::kit {

template <class Element>
void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  struct Fragments {
    std::uint32_t a[4], b[2];
  } own;
  std::memcpy(own.a, a, sizeof(own.a));
  std::memcpy(own.b, b, sizeof(own.b));
  emulated::among_lanes(~0U, own, "mma", [&](emulated::Block& block) {
    const auto element = [](std::uint32_t pair, unsigned i) {
      Element elements[2];
      std::memcpy(static_cast<void*>(elements), &pair, sizeof(pair));
      return static_cast<float>(elements[i]);
    };
    const unsigned lane = block.fiber().lane();
    for (unsigned k = 0; k < 16; ++k) {
      // Four lanes share a row of A, and a column of B.
      const unsigned of_four = k % 8 / 2, half = k / 8;
      const auto rows = block.shown_by<Fragments>(lane / 4 * 4 + of_four);
      for (unsigned column = 0; column < 2; ++column) {
        const auto columns = block.shown_by<Fragments>((2 * (lane % 4) + column) * 4 + of_four);
        for (unsigned row = 0; row < 2; ++row) {
          d[2 * row + column] +=
              element(rows.a[2 * half + row], k % 2) * element(columns.b[half], k % 2);
        }
      }
    }
    return 0;
  });
}

}  // namespace ps::kit
