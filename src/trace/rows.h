// Rows within a lane: overlapping intervals are shown in different rows.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "penstock/trace/timeline.h"

namespace ps::detail {

// Returns one row number per span, such that no two spans of a row overlap. Each span gets the
// lowest row that is free when it begins, so there are as many rows as spans overlap at most.
// An empty or reversed span occupies the instant at which it begins.
std::vector<std::size_t> assign_rows(std::span<const Span> spans);

}  // namespace ps::detail
