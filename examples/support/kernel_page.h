// A page of what the roles inside one kernel did, from the trace that the kernel wrote itself.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "penstock/host/stream.h"
#include "penstock/kit/trace.h"

namespace ladder {

struct TracedKernel {
  std::string name = {};                // of the page's file
  std::vector<std::string> roles = {};  // by number
  ps::kit::TraceShape shape = {};
  // Enqueues the kernel, with a buffer of that shape.
  std::function<void(void* buffer)> launch = {};
};

// Runs the kernel once more, traced, and writes FOLDER/NAME.html and .json (for `penstock report`);
// returns the page's path. Synchronises. Throws SystemError, and what the trace's reader throws.
std::filesystem::path write_kernel_page(const std::filesystem::path& folder,
                                        const TracedKernel& kernel, const ps::Stream& stream);

}  // namespace ladder
