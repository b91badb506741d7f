// How many groups the experts of a call are computed in, and how large they are. The first group
// has the experts that are on the device; the others wait for copies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ps::detail {

inline constexpr std::size_t most_expert_groups = 32;

// A call with more (token, choice) pairs per expert does not wait for its routing: nearly all
// experts have rows.
inline constexpr std::int64_t whole_pairs = 16;

// Slots besides pinned ones that a layer of `experts` experts needs at least. A group has at most
// half of the slots, so that the other half can be filled meanwhile.
constexpr std::size_t least_expert_slots(std::size_t experts) {
  constexpr std::size_t groups = most_expert_groups - 1;
  return 2 * ((experts + groups - 1) / groups);
}

// Groups of a call that needs at most `needed` experts, of which probably as many as
// `expected_misses` must be copied. Each group costs a few microseconds even if it is empty, so few
// are made if there is little to overlap.
constexpr std::size_t expert_groups(std::size_t needed, std::size_t slots,
                                    std::size_t expected_misses) {
  const std::size_t half = std::max<std::size_t>(slots / 2, 1);
  const std::size_t most = std::min<std::size_t>(needed, needed < 32 ? 3 : 7);
  const std::size_t usual = std::clamp<std::size_t>(expected_misses, 1, most);
  return 1 + std::max(usual, (needed + half - 1) / half);
}

// The size of the next of `groups` groups that share `experts` experts. The last one is small,
// because nothing overlaps with its products.
constexpr std::size_t expert_group_size(std::size_t experts, std::size_t groups,
                                        std::size_t slots) {
  const std::size_t half = std::max<std::size_t>(slots / 2, 1);
  if (groups <= 1 || experts <= 1) return experts;
  const std::size_t last = std::max<std::size_t>(1, experts / 32);
  const std::size_t even = (experts - last + groups - 2) / (groups - 1);
  const std::size_t others = (groups - 1) * half;
  return std::max(std::min(even, half), experts > others ? experts - others : 0);
}

}  // namespace ps::detail
