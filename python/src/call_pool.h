// Memory for calls that are given no workspace.
#pragma once

#include "penstock/host/device.h"
#include "penstock/host/pool.h"

namespace ps::python {

// The memory goes back to the system when a call's work is done, since it may be large. The GIL is
// held.
const Pool& call_pool(const Device& device);

}  // namespace ps::python
