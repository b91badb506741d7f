// The order in which persistent blocks take tiles of 128 queries of one head: one group of heads
// after the other, and within a group the last queries of all its heads first. With a causal mask,
// these have the most keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/support/problem.h"
#include "penstock/kit/scheduler.h"

namespace ladder::attention {

constexpr unsigned tile_queries = 128;

// The number of heads per group: as large as possible while the group's keys and values stay in the
// L2 cache, and nearly the same for all groups.
inline unsigned heads_in_group(unsigned heads, unsigned rows) {
  constexpr std::uint64_t cache = 32 << 20;  // bytes, of 50 MB or more
  const std::uint64_t head_bytes = std::uint64_t{rows} * dim * 2 * 2;
  const auto most = static_cast<unsigned>(std::clamp<std::uint64_t>(cache / head_bytes, 1, heads));
  const unsigned groups = (heads + most - 1) / most;
  return (heads + groups - 1) / groups;
}

// The row of a tile is its head.
inline ps::kit::GroupedOrder order_of(unsigned heads, unsigned rows, unsigned group) {
  return ps::kit::GroupedOrder(heads, (rows + tile_queries - 1) / tile_queries, group);
}

}  // namespace ladder::attention
