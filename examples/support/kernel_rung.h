// A rung that is about kernels, on any ladder: it needs a GPU, says which machine instructions its
// file holds, and its rows carry registers, shared memory and occupancy.
//
//   const ladder::Instructions machine{.holds = {"LDGSTS"}, .lacks = {"STS"}};
//   std::vector<ladder::Row> run(ladder::Context& context) {
//     auto& problem = context.shared<Problem>();  // Problem(context), made once for all rungs
//     ...
//     row.seconds = problem.seconds(...);
//     row.efficiency = problem.floor_seconds(...) / row.seconds;  // the share of the limit
//     row.use = ladder::kernel_use(kernel, threads, shared_bytes);
//   }
//   PENSTOCK_KERNEL_RUNG("cp.async", "One sentence on what this rung shows.", machine, run);
//
// The instructions are an object of the file, which lives as long as the program.
// A ladder with many rungs of one form makes a macro of its own of this one, as the copy ladder
// does. The program's command is one line in cli/ladder.cpp.
#pragma once

#include "support/rung.h"

#define PENSTOCK_KERNEL_RUNG(title, text, instructions, function) \
  static const ladder::detail::Registration registration(         \
      __FILE__,                                                   \
      {.name = (title), .sentence = (text), .run = (function), .machine = &(instructions)})
