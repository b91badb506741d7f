// A page of what the roles inside one kernel did, from the trace that the kernel wrote itself.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "penstock/host/stream.h"
#include "penstock/kit/trace.h"
#include "penstock/trace/kernel_trace.h"

namespace ladder {

// How much of a kernel is traced.
struct TraceRoom {
  unsigned blocks = 8;        // of every multiprocessor
  unsigned capacity = 1024;   // spans of a role of each
  bool short_blocks = false;  // one follows the other: they must not be held up for the clocks
};

struct TracedKernel {
  std::string name = {};                // of the page's file
  std::vector<std::string> roles = {};  // by number
  TraceRoom room = {};
  // Enqueues the kernel.
  std::function<void(const ps::kit::TraceBuffer<true>& buffer)> launch = {};
};

// Runs the kernel and reads what it wrote. Synchronises. Throws what the trace's reader throws.
ps::KernelTrace run_traced(const TracedKernel& kernel, const ps::Stream& stream);

// The same, and writes FOLDER/NAME.html and .json (for `penstock report` and tools/picture.py).
// Throws SystemError, too.
void write_kernel_page(const std::filesystem::path& folder, const TracedKernel& kernel,
                       const ps::Stream& stream);

}  // namespace ladder
