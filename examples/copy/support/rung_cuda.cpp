#include "copy/support/rung.h"

#include "copy/support/problem.h"

namespace ladder::copy {
namespace {

// Of 256 MiB a block has its tens of tiles, and the cache a small part.
constexpr std::size_t traced_elements = std::size_t{64} << 20;

// Inside a function, so that it exists before the first file registers.
std::vector<RungKernels>& registered() {
  static std::vector<RungKernels> all;
  return all;
}

}  // namespace

detail::Listed::Listed(RungKernels kernels) { registered().push_back(kernels); }

const std::vector<RungKernels>& all_kernels() { return registered(); }

std::vector<Row> measure(Context& context, const std::vector<Kernel>& kernels,
                         const std::vector<Traced>& traced) {
  auto& problem = context.shared<Problem>();
  std::vector<Row> rows = problem.rows(context, kernels);
  if (context.trace().empty()) return rows;
  for (const Traced& one : traced) {
    if (!why_not(one.kernel({}), context.device()).empty()) continue;
    const auto launch = [&](const ps::kit::TraceBuffer<true>& buffer) {
      const Kernel kernel = one.kernel(buffer);
      enqueue(
          kernel,
          problem.options(kernel.formula, problem.rounds(Intensity::balanced), 0, traced_elements),
          problem.stream());
    };
    write_kernel_page(
        context.trace(),
        {.name = "copy_" + one.name, .roles = one.roles, .room = one.room, .launch = launch},
        problem.stream());
  }
  return rows;
}

}  // namespace ladder::copy
