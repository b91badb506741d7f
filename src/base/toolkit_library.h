// Libraries of the CUDA toolkit that only some runs need. They are loaded at first use, because
// most machines have them only in a toolkit's folder or in a Python package.
#pragma once

#include <string>

namespace ps::detail {

// Opens `name` ("libcupti.so.13") and keeps it open until the process ends; null if it is not
// found. If the environment variable `variable` is set, it holds the library's path.
void* open_toolkit_library(const std::string& name, const char* variable);

}  // namespace ps::detail
