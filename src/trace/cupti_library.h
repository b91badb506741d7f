#pragma once

namespace ps::detail {

// Opens CUPTI, for as long as the process lives; null where it is not found.
void* open_cupti(int cuda_major);

}  // namespace ps::detail
