// The steps of moe() on the CPU, with the loop that divides their work as a parameter: streamed
// experts and tests divide it in other ways.
#pragma once

#include <cstddef>
#include <functional>

#include "ops/moe/work.h"

namespace ps::mixture {

// Calls work(begin, end) for ranges that cover [0, count), as parallel_ranges() does.
using Ranges =
    std::function<void(std::size_t count, std::size_t grain,
                       const std::function<void(std::size_t begin, std::size_t end)>& work)>;

void sort_pairs(const detail::MoeWork& work, const Ranges& ranges);
void compute_experts(const detail::MoeWork& work, const Ranges& ranges);
void add_up(const detail::MoeWork& work, const Ranges& ranges);

}  // namespace ps::mixture
