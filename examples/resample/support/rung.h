// How a file becomes a rung of the resample ladder:
//
//   std::vector<Kernel> kernels() { ... }
//   const ladder::Instructions machine{.holds = {"LDG.128"}};
//   PENSTOCK_RESAMPLE_RUNG("vectorised", "One sentence on what this rung shows.", machine,
//                          kernels);
#pragma once

#include <string_view>
#include <vector>

#include "resample/support/work.h"
#include "support/context.h"
#include "support/kernel_rung.h"

namespace ladder::resample {

// A rung's kernels, for those who run them outside of the ladder.
struct RungKernels {
  std::string_view rung;
  std::vector<Kernel> (*kernels)() = nullptr;
};

// Of every rung linked into this program, in no order.
const std::vector<RungKernels>& all_kernels();

// The rows of a rung, by the problem that the context's rungs share.
std::vector<Row> measure(Context& context, const std::vector<Kernel>& kernels);

namespace detail {
struct Listed {
  explicit Listed(RungKernels kernels);
};
}  // namespace detail

}  // namespace ladder::resample

#define PENSTOCK_RESAMPLE_RUNG(title, text, instructions, kernels)                               \
  static std::vector<ladder::Row> measure_rung(ladder::Context& context) {                       \
    return ladder::resample::measure(context, kernels());                                        \
  }                                                                                              \
  static const ladder::resample::detail::Listed listed({.rung = (title), .kernels = (kernels)}); \
  PENSTOCK_KERNEL_RUNG(title, text, instructions, measure_rung)
