// Copies between ordinary memory and slots, by the cores.
#pragma once

#include <cstddef>
#include <vector>

#include "penstock/host/pipeline.h"

namespace ps::detail {

struct HostCopy {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
  bool to_slot;  // else from one
};

// Returns at once; the cores call `done` when all copies are made.
void copy_on_cores(const std::vector<HostCopy>& copies, const Completion& done);

}  // namespace ps::detail
