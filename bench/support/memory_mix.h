// Main memory alone: reads and writes in a given mix, with next to no arithmetic. A loop over
// arrays with the same bytes in and out cannot be faster than the best of these ways.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "penstock/base/view.h"

namespace bench {

struct MemoryMix {
  ps::MemoryView from;  // all of it is read
  ps::MemoryView to;    // all of it is written
  bool one_thread = false;
};

// One pass per way: stores through the caches and past them, reads from one place and from several
// in turn, reads and writes alternating in small and in large blocks, one share per thread and many
// small ones. `to` begins at a cache line. The memory must outlive them.
std::vector<std::function<void()>> memory_passes(const MemoryMix& mix);

}  // namespace bench
