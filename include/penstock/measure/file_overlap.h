// Reading a file and computing on it, one after the other and overlapped: the overlap that a
// machine without a GPU has.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "penstock/base/units.h"
#include "penstock/trace/overlap.h"
#include "penstock/trace/timeline.h"

namespace ps {

struct FileOverlapOptions {
  std::filesystem::path directory = ".";  // where the file is written, and removed again
  std::size_t bytes = 256 * MiB;
  std::size_t chunk = 4 * MiB;  // a multiple of 4 KiB that divides `bytes`
  std::size_t depth = 16;  // a disk answers in bursts: few slots would let it, or compute, run dry
  double compute_ratio = 1;  // compute time over read time
  int repeats = 5;
  std::stop_token stop{};
  std::function<void(std::string_view what, double share)> progress{};
};

struct FileOverlapRun {
  double read = 0, compute = 0;  // busy seconds
  double seconds = 0;
};

struct FileOverlapResult {
  std::size_t bytes = 0, chunk = 0, chunks = 0, depth = 0;
  int rounds = 0;
  bool direct = false;  // past the page cache
  double read_alone = 0, compute_alone = 0;
  FileOverlapRun sequential, pipelined;
  OverlapTimes times;
  OverlapFigures figures;
  Timeline sequential_timeline, pipelined_timeline;
};

// Every run's result is checked. The file has no name by the time it is written, so nothing is left
// behind however this ends. Throws InvalidArgument naming the option, SystemError naming the
// directory, OutOfMemory, Cancelled.
std::unique_ptr<FileOverlapResult> measure_file_overlap(const FileOverlapOptions& options);

}  // namespace ps
