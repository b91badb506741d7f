// The options and the run that the examples' main() and `penstock ladder host` share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace ladder {

struct CommandOptions {
  std::string device = "best";
  std::string bytes, chunk;  // as ps::parse_bytes() reads them; empty: what suits
  std::string only;
  bool quick = false;
  bool json = false;
};

void add_options(CLI::App& app, CommandOptions& options);

// Climbs and prints to standard output; which rung is being measured goes to standard error when
// that is a terminal. Throws what the rungs throw.
void run_command(const CommandOptions& options);

}  // namespace ladder
