// penstock demo: overlap on whatever this machine has, side by side with the sequential run.
#pragma once

#include <stop_token>
#include <string>

#include "penstock/measure/timing.h"

namespace ps::cli {

struct DemoCommand {
  std::string device = "best";
  std::string output = "build/demo";
  std::string directory{};  // without a GPU: of the file that is read; empty: the output folder
  bool quick = false, json = false;
  Timer timer{};  // for tests
};

// Measures, writes the report and prints. A machine that is too busy to measure is no error: the
// text says so and gives the times.
void run_demo(const DemoCommand& command, const std::stop_token& stop);

}  // namespace ps::cli
