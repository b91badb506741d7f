#include "trace/cupti_library.h"

#include <string>

#include "base/toolkit_library.h"

namespace ps::detail {

void* open_cupti(int cuda_major) {
  // Records of another major version have a different layout.
  return open_toolkit_library("libcupti.so." + std::to_string(cuda_major), "PENSTOCK_CUPTI");
}

}  // namespace ps::detail
