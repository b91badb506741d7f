// Swizzles of shared memory: tensor copies write a box with its 16-byte chunks exchanged inside
// each line of 128 bytes, and wgmma reads them back the same way, so that neither rows nor columns
// of a box meet in the same banks.
#pragma once

#include "penstock/kit/config.h"

namespace ps::kit {

// Named by the span within which chunks are exchanged, the widest row that a box may have.
enum class Swizzle : unsigned char { none, b32, b64, b128 };

// Bytes of a row. Without a swizzle 16, the row that wgmma reads then; a tensor copy has no limit.
PENSTOCK_HD constexpr unsigned span(Swizzle swizzle) {
  return swizzle == Swizzle::none  ? 16U
         : swizzle == Swizzle::b32 ? 32U
         : swizzle == Swizzle::b64 ? 64U
                                   : 128U;
}

// The pattern is eight rows and repeats from multiples of their size, counted from address 0:
// 256, 512 or 1024 bytes. Without a swizzle 128, which tensor copies ask for anyway.
PENSTOCK_HD constexpr unsigned atom_alignment(Swizzle swizzle) { return 8 * span(swizzle); }

// Where the byte lies that would be at `byte_offset` without the swizzle. Offsets count from an
// address aligned to atom_alignment(). Its own inverse.
PENSTOCK_HD constexpr unsigned swizzled(unsigned byte_offset, Swizzle swizzle) {
  // The number of the 128-byte line (bits 7 to 9) is added, bit by bit, to that of the chunk in it
  // (bits 4 to 6), as far as the span has chunks.
  return byte_offset ^ ((byte_offset >> 3) & (span(swizzle) - 16));
}

}  // namespace ps::kit
