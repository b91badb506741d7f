// A page of what the roles inside one kernel did, from the trace that the kernel wrote itself.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"
#include "penstock/kit/trace.h"
#include "penstock/trace/kernel_trace.h"
#include "penstock/trace/page.h"

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

// Memory that a kernel writes its trace into.
class TraceMemory {
 public:
  // Empty for what `stream` does from now on.
  TraceMemory(const ps::Stream& stream, std::vector<std::string> roles, const TraceRoom& room);
  ps::kit::TraceBuffer<true> buffer() const;
  // What a kernel wrote that was enqueued on `stream` or has ended. Synchronises.
  ps::KernelTrace read(const ps::Stream& stream) const;

 private:
  std::vector<std::string> roles_;
  ps::kit::TraceShape shape_;
  ps::DeviceBuffer there_;
};

// Runs the kernel and reads what it wrote. Synchronises. Throws what the trace's reader throws.
ps::KernelTrace run_traced(const TracedKernel& kernel, const ps::Stream& stream);

// The same, and writes FOLDER/NAME.html and .json (for `penstock report` and tools/picture.py).
// Throws SystemError, too.
void write_kernel_page(const std::filesystem::path& folder, const TracedKernel& kernel,
                       const ps::Stream& stream);

// Writes FOLDER/NAME.html, which shows `run`, and .json, which holds `kept`.
void write_trace(const std::filesystem::path& folder, const std::string& title,
                 const ps::PageRun& run, const ps::PageRun& kept, const ps::Device& device);

}  // namespace ladder
