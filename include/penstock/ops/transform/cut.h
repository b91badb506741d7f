// Splits operands into a body of aligned vectors and single elements before and after it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>

namespace ps::elementwise {

struct Operand {
  std::uintptr_t address = 0;
  unsigned element = 1;   // bytes
  unsigned boundary = 1;  // alignment of the body in bytes: a power of two up to 16
};

// `head` single elements, then `body` elements in vectors, then the remaining single elements.
struct Cut {
  std::size_t body = 0;
  unsigned head = 0;
  unsigned ragged = 0;  // all single elements, before and after the body
};

// Splits `elements` so that the body is aligned in every operand and a multiple of `granule`
// elements, which is at most 16. Returns nullopt if no head of fewer than 16 elements aligns all
// operands.
inline std::optional<Cut> cut_at_boundaries(std::initializer_list<Operand> operands,
                                            std::size_t elements, unsigned granule) {
  for (unsigned head = 0; head < 16; ++head) {
    const bool suits = std::all_of(operands.begin(), operands.end(), [&](const Operand& each) {
      return (each.address + std::uintptr_t{head} * each.element) % each.boundary == 0;
    });
    if (!suits) continue;
    const std::size_t before = std::min<std::size_t>(head, elements);
    const std::size_t body = (elements - before) / granule * granule;
    return Cut{body, static_cast<unsigned>(before), static_cast<unsigned>(elements - body)};
  }
  return std::nullopt;
}

}  // namespace ps::elementwise
