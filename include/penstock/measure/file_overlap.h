// Measures the overlap of reading a file and computing on it, on machines without a GPU too.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "penstock/base/units.h"
#include "penstock/measure/floor.h"
#include "penstock/measure/timing.h"
#include "penstock/trace/overlap.h"
#include "penstock/trace/timeline.h"

namespace ps {

struct FileOverlapOptions {
  std::filesystem::path directory = ".";  // of the temporary file
  std::size_t bytes = 256 * MiB;          // of the file
  std::size_t chunk = 4 * MiB;            // a multiple of 4 KiB that divides `bytes`
  std::size_t depth = 16;    // slots; a disk works in bursts, so few slots would leave it idle
  double compute_ratio = 1;  // compute time / read time
  int repeats = 5;
  int tries = 3;  // most measurements; a result that is faster than its floor allows is repeated
  std::stop_token stop{};
  std::function<void(std::string_view what, double share)> progress{};
  // For tests. Times the runs "read alone", "compute alone", "pipelined" and "sequential".
  Timer timer{};
};

struct FileOverlapRun {
  double read = 0, compute = 0;  // busy seconds
  double seconds = 0;
};

struct FileOverlapResult {
  std::size_t bytes = 0, chunk = 0, chunks = 0, depth = 0;
  int rounds = 0;
  bool direct = false;              // bypassed the page cache
  Floor read_alone, compute_alone;  // the best passes of each
  FileOverlapRun sequential, pipelined;
  OverlapTimes times;
  OverlapFigures figures;
  FloorVerdict verdict;  // on the pipelined run
  int tries = 0;
  Timeline sequential_timeline, pipelined_timeline;
};

// Runs the measurement and checks the result of every run. The file is unlinked before it is
// written, so it is never left behind. Throws InvalidArgument naming the option, SystemError naming
// the directory, OutOfMemory, Cancelled.
std::unique_ptr<FileOverlapResult> measure_file_overlap(const FileOverlapOptions& options);

}  // namespace ps
