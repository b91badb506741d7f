#pragma once

#include "gpu/lesson/run.h"

namespace ps::lesson {

// The kernel, and how to launch it.
RunOptions three_slots();

}  // namespace ps::lesson
