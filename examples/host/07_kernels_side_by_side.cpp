// Kernels beside kernels. A kernel of one block leaves the rest of the GPU free; kernels on other
// streams fill it, until as many run as the hardware keeps track of (128 on today's GPUs) and the
// next ones wait. Two kernels that each have a block for every multiprocessor still run together
// when their blocks fit side by side, and one after the other when shared memory says no.
#include <algorithm>
#include <cmath>

#include "support/context.h"
#include "support/spin.h"

namespace {

// Time for one spin kernel on each of `count` streams, all at once.
double time_together(ladder::Context& context, std::size_t count, const ladder::SpinOptions& spin) {
  const std::vector<ps::Stream> streams = [&] {
    std::vector<ps::Stream> made;
    while (made.size() < count) made.emplace_back(context.device());
    return made;
  }();
  return context.median_seconds([&] {
    for (const ps::Stream& stream : streams) ladder::spin(spin, stream);
    for (const ps::Stream& stream : streams) stream.synchronize();
  });
}

// `at_once`: how many of the kernels the machine can run together.
ladder::Row measure(ladder::Context& context, std::string label, std::size_t count,
                    std::size_t at_once, const ladder::SpinOptions& spin) {
  ladder::Row row{.label = std::move(label), .seconds = time_together(context, count, spin)};
  const double sequential = static_cast<double>(count) * spin.seconds;
  const double floor =
      std::ceil(static_cast<double>(count) / static_cast<double>(at_once)) * spin.seconds;
  row.speedup = sequential / row.seconds;
  ladder::set_overlap(row, {.sequential = sequential, .floor = floor, .ideal = floor});
  return row;
}

std::vector<ladder::Row> run(ladder::Context& context) {
  const ps::Capabilities machine = context.device().capabilities();
  const auto units = static_cast<std::size_t>(machine.multiprocessors);
  const auto at_once =
      context.on_gpu() ? static_cast<std::size_t>(machine.concurrent_grids) : units;
  // Long against the launches, of which 512 take over a millisecond.
  const double seconds = context.quick() ? 2e-3 : 8e-3;

  std::vector<ladder::Row> rows;
  for (std::size_t count = 1; count <= (context.on_gpu() ? 512U : 8U); count *= 2) {
    rows.push_back(
        measure(context, std::to_string(count) + (count == 1 ? " small kernel" : " small kernels"),
                count, at_once, {.seconds = seconds}));
  }
  if (!context.on_gpu()) return rows;

  const auto all = static_cast<int>(units), half = std::max(1, all / 2);
  const std::size_t whole = ladder::most_shared_bytes(context.device());
  rows.push_back(measure(context, "2 kernels on all SMs, small blocks", 2, 2,
                         {.seconds = seconds, .blocks = all}));
  rows.push_back(measure(context, "2 kernels on all SMs, a block takes the SM's shared memory", 2,
                         1, {.seconds = seconds, .blocks = all, .shared_bytes = whole}));
  rows.push_back(measure(context,
                         "2 kernels on half the SMs each, blocks that take the SM's shared memory",
                         2, 2, {.seconds = seconds, .blocks = half, .shared_bytes = whole}));
  return rows;
}

PENSTOCK_RUNG("kernels", "Small kernels on many streams run at once, up to the hardware's limit.",
              run);

}  // namespace
