// Libraries of the CUDA toolkit that only some runs want. They are loaded at first use: most
// machines have them only in a toolkit's folder, or in a Python package.
#pragma once

#include <string>

namespace ps::detail {

// Opens `name` ("libcupti.so.13") for as long as the process lives; null where it is not found. The
// environment variable `variable`, where set, says where it is.
void* open_toolkit_library(const std::string& name, const char* variable);

}  // namespace ps::detail
