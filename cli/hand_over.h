// Commands that another program carries out, in place of this one.
#pragma once

#include <string>
#include <vector>

namespace ps::cli {

// `words` as main() and exec take them: they must outlive the result.
std::vector<char*> pointers(std::vector<std::string>& words);

// Undoes what Interrupt did to this thread's signals, so that a program started now gets them
// itself.
void give_signals_back();

// Replaces this program by words[0], which is searched for in PATH where it has no slash. Returns
// only when that failed, with errno set.
void replace_program(std::vector<std::string> words);

}  // namespace ps::cli
