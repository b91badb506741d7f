// Libraries and programs that may or may not be installed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/measure/machine.h"

namespace ps::detail {

std::vector<Tool> find_tools();

// The first executable of this name in `path` (as in $PATH), or empty.
std::string find_program(std::string_view program, std::string_view path);

}  // namespace ps::detail
