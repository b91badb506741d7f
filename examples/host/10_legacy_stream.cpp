// Trap: one tiny piece of work per item on the legacy default stream. It waits for every blocking
// stream, and they wait for it, so nothing overlaps any more. Non-blocking streams, which are the
// only kind that Penstock makes, do not take part.
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "support/blocking_stream.h"
#include "support/two_way.h"

namespace {

std::vector<ladder::Row> run(ladder::Context& context) {
  if (!context.on_gpu()) return ladder::not_here("needs a GPU: the CPU has no default stream");

  const ladder::BlockingStream upload = ladder::make_blocking_stream(context.device());
  const ladder::BlockingStream compute = ladder::make_blocking_stream(context.device());
  const ps::Stream legacy = ladder::legacy_stream(context.device());
  const ps::DeviceBuffer tiny(context.device(), ps::KiB);
  const auto touch_legacy = [&](ps::Item&) { ps::fill(tiny.view(), 0, legacy); };

  return {
      ladder::measure_two_way(context, "blocking streams",
                              {.upload = upload.stream, .compute = compute.stream}),
      ladder::measure_two_way(
          context, "blocking streams, the legacy stream touched per item",
          {.upload = upload.stream, .compute = compute.stream, .after_compute = touch_legacy}),
      ladder::measure_two_way(context, "non-blocking streams, the legacy stream touched per item",
                              {.after_compute = touch_legacy}),
  };
}

PENSTOCK_RUNG("legacy-stream",
              "Work on the legacy default stream prevents overlap of blocking streams.", run);

}  // namespace
