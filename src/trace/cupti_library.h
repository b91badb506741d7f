#pragma once

namespace ps::detail {

// Opens CUPTI for the rest of the process; null if it is not found.
void* open_cupti(int cuda_major);

}  // namespace ps::detail
