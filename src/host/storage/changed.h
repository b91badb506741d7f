// Notices that a file was changed after it was opened.
#pragma once

#include "penstock/host/storage.h"

namespace ps::detail {

// Throws SystemError naming the file if its size or time of modification are not those of `before`.
void check_unchanged(const File& file, const FileVersion& before);

}  // namespace ps::detail
