// What a kernel takes of a multiprocessor. kernel_use.cuh asks the driver.
#pragma once

#include <cstddef>

namespace ladder {

struct KernelUse {
  int registers = 0;             // of a thread
  std::size_t shared_bytes = 0;  // of a block, static and dynamic
  int threads = 0;               // of a block
  int blocks = 0;                // that fit on a multiprocessor at once
  double occupancy = 0;          // their threads over the most that it holds
};

}  // namespace ladder
