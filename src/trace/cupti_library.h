// CUPTI is loaded when it is first wanted: most runs do without, and most machines have it only in
// a toolkit's folder.
#pragma once

namespace ps::detail {

// Opens it, for as long as the process lives; null where it is not found.
void* open_cupti(int cuda_major);

}  // namespace ps::detail
