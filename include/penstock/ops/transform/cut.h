// Where whole vectors can be taken from several operands at once. Host arithmetic.
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
  unsigned boundary = 1;  // that the body should begin at: a power of two up to 16
};

// `head` elements one by one, `body` elements in vectors, the rest one by one again.
struct Cut {
  std::size_t body = 0;
  unsigned head = 0;
  unsigned ragged = 0;  // elements that are not in the body
};

// Cuts `elements` so that the body begins at every operand's boundary and is a multiple of
// `granule`, at most 16. Nothing where no head of fewer than 16 elements leads to all boundaries.
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
