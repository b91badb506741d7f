// Shared-memory swizzles: tensor copies permute the 16-byte chunks of a box within each 128-byte
// line, and wgmma reads them in the same permutation, so that rows and columns are free of bank
// conflicts.
#pragma once

#include "penstock/kit/config.h"

namespace ps::kit {

// Named by the span within which chunks are permuted, which is also the widest row of a box.
enum class Swizzle : unsigned char { none, b32, b64, b128 };

// The span in bytes. Without a swizzle it is 16, the row that wgmma reads.
PENSTOCK_HD constexpr unsigned span(Swizzle swizzle) {
  return swizzle == Swizzle::none  ? 16U
         : swizzle == Swizzle::b32 ? 32U
         : swizzle == Swizzle::b64 ? 64U
                                   : 128U;
}

// The alignment in bytes of swizzled shared memory: the pattern repeats every eight rows, counted
// from address 0. Without a swizzle it is 128, which tensor copies need.
PENSTOCK_HD constexpr unsigned atom_alignment(Swizzle swizzle) { return 8 * span(swizzle); }

// The offset of the byte that would be at `byte_offset` without the swizzle. Offsets count from an
// address aligned to atom_alignment(). The function is its own inverse.
PENSTOCK_HD constexpr unsigned swizzled(unsigned byte_offset, Swizzle swizzle) {
  // XORs the index of the 128-byte line (bits 7 to 9) into the index of the chunk (bits 4 to 6),
  // for as many bits as the span has.
  return byte_offset ^ ((byte_offset >> 3) & (span(swizzle) - 16));
}

}  // namespace ps::kit
