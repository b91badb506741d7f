// The program `penstock-ladder`, which `penstock ladder` starts: the command `ladder` with the
// rungs of every ladder. It is a program of its own because the rungs' kernels take long to
// compile.
#include <array>

#include "run.h"

int main(int argc, char** argv) {
  return ps::cli::run_program(argc, argv, std::array{ps::cli::AddCommand{ps::cli::add_ladder}});
}
