// The arguments of attention(): checked once, and turned into work.
#pragma once

#include <cstddef>

#include "ops/attention/work.h"
#include "penstock/host/device.h"

namespace ps::attending {

// All of the work. `memory` is null if the workspace is to be allocated or not needed. Throws
// InvalidArgument naming the argument.
detail::AttentionWork checked(const AttentionOptions& options, const Device& device);

// The size of the workspace, without a device. Throws InvalidArgument naming the argument.
std::size_t workspace_bytes(const AttentionOptions& options);

}  // namespace ps::attending
