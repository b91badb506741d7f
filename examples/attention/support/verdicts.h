// What the phases of the attention ladder are expected to reach at 32 heads of 4096 rows:
//
//   1  scalar               at most 420 ms, at least 0.65 TFLOP/s
//   2  asynchronous copies  at least 10 TFLOP/s, at least 50 % of the DRAM bandwidth, an L2 hit rate
//                           of 40 to 60 %, as many bytes as phase 1
//   3  tensor cores         faster than phase 2
//
// The second phase's expectations of the memory are those of a kernel that memory limits.
#pragma once

#include <vector>

#include "support/verdict.h"

namespace ladder::attention {

std::vector<ladder::Verdict> verdicts(const std::vector<ladder::RungRows>& results);

}  // namespace ladder::attention
