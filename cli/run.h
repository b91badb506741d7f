// What the programs penstock and penstock-ladder have in common: command line, errors, exit codes.
#pragma once

#include <span>

#include "commands.h"

namespace ps::cli {

// The program `penstock` with these commands. Exit codes: 0 success, 1 failure, 2 a command line it
// does not understand, 130 interrupted.
int run_program(int argc, char** argv, std::span<const AddCommand> commands);

}  // namespace ps::cli
