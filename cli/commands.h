// Every command of the program: declare it here, put it in the table, write its file.
#pragma once

#include <array>

namespace ps::cli {

class Program;

// Each adds its subcommand to the program's app, and calls Program::chosen() when it is selected.
void add_doctor(Program& program);
void add_demo(Program& program);
void add_overlap(Program& program);
void add_ladder(Program& program);
void add_bench(Program& program);
void add_tune(Program& program);
void add_report(Program& program);

// In the order of `penstock --help`.
inline constexpr std::array all_commands = {add_doctor, add_demo, add_overlap, add_ladder,
                                            add_bench,  add_tune, add_report};

}  // namespace ps::cli
