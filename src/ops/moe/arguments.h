// The arguments of moe() and its steps: checked once, and turned into work.
#pragma once

#include "ops/moe/work.h"
#include "penstock/host/device.h"

namespace ps::mixture {

// Whether the call allocates a workspace from `pool` if none is given.
enum class Workspace : bool { given, given_or_pool };

// Sizes, types and the layout of the workspace, from x, gate_up, ids and slots alone. Throws
// InvalidArgument naming the argument.
detail::MoeWork sized(const MoeOptions& options);

// All of the work. `memory` is null if the workspace is to be allocated. Throws InvalidArgument
// naming the argument.
detail::MoeWork checked(const MoeOptions& options, Workspace workspace, const Device& device);

// The same for options that were checked as those of another device, without checks.
detail::MoeWork unchecked(const MoeOptions& options);

// Throws InvalidArgument for the first id that is negative. `ids` are work.ids or a copy of them
// that the host can read.
void check_ids(const detail::MoeWork& work, const void* ids);

}  // namespace ps::mixture
