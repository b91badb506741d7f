// The arguments of append_kv(): checked once, and turned into work.
#pragma once

#include "ops/append_kv/work.h"
#include "penstock/host/device.h"

namespace ps::appending {

// All of the work. Throws InvalidArgument naming the argument.
detail::AppendWork checked(const AppendKVOptions& options, const Device& device);

// Throws InvalidArgument if a new row has no place in the cache or no position in the tables. The
// arrays of `work` that are read on the stream are copies that the host can read.
void check_places(const detail::AppendWork& work);

}  // namespace ps::appending
