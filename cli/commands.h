// Every command of the program: declare it here, put it in the table, write its file.
#pragma once

#include <array>

namespace ps::cli {

class Program;

// Each adds its subcommand to the program's app, and calls Program::chosen() when it is selected.
void add_doctor(Program& program);
void add_demo(Program& program);
void add_overlap(Program& program);
void add_moe(Program& program);
void add_bench(Program& program);
void add_tune(Program& program);
void add_report(Program& program);

// Starts the program penstock-ladder, whose one command is add_ladder().
void add_ladder_program(Program& program);
void add_ladder(Program& program);
inline constexpr const char* about_ladder =
    "Runs a ladder: programs for one task, from the simplest to the fastest, each measured";

using AddCommand = void (*)(Program&);

// In the order of `penstock --help`.
inline constexpr std::array all_commands = {add_doctor,         add_demo,  add_overlap, add_moe,
                                            add_ladder_program, add_bench, add_tune,    add_report};

}  // namespace ps::cli
