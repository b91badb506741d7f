// The arguments of attention(): checked once, and turned into work.
#pragma once

#include <cstdint>

#include "ops/attention/work.h"
#include "penstock/host/device.h"

namespace ps::attending {

// All of the work. `memory` is null if the workspace is to be allocated or not needed. Throws
// InvalidArgument naming the argument.
detail::AttentionWork checked(const AttentionOptions& options, const Device& device);

// The layout of the workspace, from q and cu_q alone. Throws InvalidArgument naming the argument.
detail::AttentionWorkspace sized(const AttentionOptions& options);

}  // namespace ps::attending
