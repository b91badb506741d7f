// The program `penstock`.
#include "run.h"

int main(int argc, char** argv) { return ps::cli::run_program(argc, argv, ps::cli::all_commands); }
