// The kernel with roles as the benchmark takes it apart: whole, its copies alone, its arithmetic
// alone. The same source each time, with the other side compiled out.
#pragma once

#include <string>
#include <vector>

#include "copy/support/work.h"

namespace ladder::copy {

struct Sides {
  std::string name;  // "32 KiB, depth 6, 8 warps"
  Kernel both, copy, compute;
};

// Ways to build the ring; which one is best is for the benchmark to say.
std::vector<Sides> role_sides();

}  // namespace ladder::copy
