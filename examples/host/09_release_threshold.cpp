// Trap: a pool with CUDA's default threshold of zero gives all free memory back to the system at
// every synchronise, and takes it again for the next batch. Keeping it costs nothing but memory.
#include "penstock/base/units.h"
#include "penstock/host/pool.h"
#include "penstock/host/stream.h"
#include "penstock/ops/iterate.h"
#include "support/context.h"

namespace {

ladder::Row measure(ladder::Context& context, std::string label, std::size_t threshold) {
  const ps::Pool pool(context.device(), {.release_threshold = threshold});
  const ps::Stream stream(context.device());

  const double seconds = context.median_seconds([&] {
    for (std::size_t i = 0; i < context.chunks(); ++i) {
      const ps::MemoryView in = context.result(i);
      const ps::MemoryView scratch = pool.allocate(in.bytes, stream);
      ps::iterate({.in = ps::floats(in), .out = ps::floats(scratch), .rounds = 1}, stream);
      pool.free(scratch, stream);
      stream.synchronize();
    }
  });
  return {.label = std::move(label),
          .seconds = seconds,
          .note = ps::format_seconds(seconds / static_cast<double>(context.chunks())) +
                  " per batch; " + ps::format_bytes(pool.statistics().reserved) +
                  " still reserved at the end"};
}

std::vector<ladder::Row> run(ladder::Context& context) {
  return {measure(context, "threshold 0, synchronised per batch", 0),
          measure(context, "keep all, synchronised per batch", ps::keep_all)};
}

PENSTOCK_RUNG("release-threshold",
              "A pool that returns its memory to the driver at every synchronise.", run);

}  // namespace
