// Runs another program and keeps what it prints.
#pragma once

#include <string>
#include <vector>

namespace ladder {

struct Captured {
  int code = -1;          // exit code; 128 + the signal that ended it
  std::string text = {};  // of standard output and standard error
};

// `words`: the program, searched for in PATH where it has no slash, and its arguments. Numbers are
// printed as in English, and signals that this program handles end the other one. Throws
// ps::SystemError if it cannot be started.
Captured run_captured(std::vector<std::string> words);

}  // namespace ladder
