// How a file becomes a rung of the copy ladder:
//
//   std::vector<Kernel> kernels() { ... }
//   const ladder::Instructions machine{.holds = {"LDG.128"}};
//   std::vector<Traced> traced() { ... }
//   PENSTOCK_COPY_RUNG("vectorised", "One sentence on what this rung shows.", machine, kernels,
//                      traced);
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "copy/support/work.h"
#include "support/kernel_page.h"
#include "support/kernel_rung.h"

namespace ladder::copy {

// A kernel of the rung once more, with its trace switched on: what its parts do when.
struct Traced {
  std::string name = {};  // the page is called copy_NAME
  std::vector<std::string> roles = {"load", "compute", "store"};
  std::function<Kernel(const ps::kit::TraceBuffer<true>& buffer)> kernel = {};
  TraceRoom room = {};
};

// Of kernels with roles, by ps::kit::Role.
inline std::vector<std::string> role_names() { return {"loader", "compute", "storer"}; }

// A rung's kernels, for those who run them outside of the ladder: tests and benchmarks.
struct RungKernels {
  std::string_view rung;
  std::vector<Kernel> (*kernels)() = nullptr;
  std::vector<Traced> (*traced)() = nullptr;
};

// Of every rung linked into this program.
const std::vector<RungKernels>& all_kernels();

// The rows of a rung, by the problem that the context's rungs share. Where traces are asked for, it
// writes them, of the balanced work.
std::vector<Row> measure(Context& context, const std::vector<Kernel>& kernels,
                         const std::vector<Traced>& traced);

namespace detail {
struct Listed {
  explicit Listed(RungKernels kernels);
};
}  // namespace detail

}  // namespace ladder::copy

#define PENSTOCK_COPY_RUNG(title, text, instructions, kernels, traced)     \
  static std::vector<ladder::Row> measure_rung(ladder::Context& context) { \
    return ladder::copy::measure(context, kernels(), traced());            \
  }                                                                        \
  static const ladder::copy::detail::Listed listed(                        \
      {.rung = (title), .kernels = (kernels), .traced = (traced)});        \
  PENSTOCK_KERNEL_RUNG(title, text, instructions, measure_rung)
