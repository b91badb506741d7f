#pragma once

#include "gpu/lesson/run.h"

namespace ps::lesson {

// The kernel, and how to launch it.
RunOptions missing_wait();

}  // namespace ps::lesson
