// The host's side of Machine, read from the system's files.
#pragma once

#include <filesystem>

#include "penstock/measure/machine.h"

namespace ps::detail {

// `root` stands for "/" in the paths read, so that tests can show it other machines. What is not
// read from files (kernel, limits, io_uring) always comes from this process.
HostSystem read_host(const std::filesystem::path& root = "/");

}  // namespace ps::detail
