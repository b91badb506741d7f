// The bytes of a file of packed experts: a page with a header, then the blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/host/storage.h"
#include "penstock/outofcore/expert_file.h"

namespace ps::detail {

inline constexpr std::uint64_t expert_blocks_offset = 4096;

// Reads and checks the header of an open file. Throws as expert_file_info().
ExpertFileInfo read_expert_header(const File& file);

}  // namespace ps::detail
