// The ways to run iterate(), one a place. Arguments are already checked.
#pragma once

#include <cstddef>

#include "penstock/host/stream.h"

namespace ps::detail {

struct IterateWork {
  const float* in = nullptr;
  float* out = nullptr;  // equal to `in` or apart from it
  std::size_t elements = 0;
  int rounds = 0;
  int blocks = 0;
};

void iterate_cpu(const IterateWork& work, const Stream& stream);

// On a GPU of 8.0 or later. Throws DeviceError.
void iterate_portable(const IterateWork& work, const Stream& stream);

}  // namespace ps::detail
