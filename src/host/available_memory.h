// How much host memory this process can still take.
#pragma once

#include <cstddef>
#include <filesystem>

namespace ps::detail {

// Bytes that can be taken without swapping and without exceeding the memory limits of the control
// groups of this process; as much as a size_t holds if the system does not say. Touching more than
// this may end the process. `root` is where /proc and /sys are; tests put files of their own there.
std::size_t available_memory(const std::filesystem::path& root = "/");

}  // namespace ps::detail
