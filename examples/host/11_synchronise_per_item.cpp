// Trap: waiting for every item. However the host waits, the device has nothing queued when it is
// done, and both engines idle until the host has enqueued the next item.
#include "penstock/base/units.h"
#include "penstock/host/event.h"
#include "support/two_way.h"

namespace {

std::vector<ladder::Row> run(ladder::Context& context) {
  const ps::Event spinning(context.device(), {.waiting = ps::Waiting::spin});
  const ps::Event polling(context.device(), {.waiting = ps::Waiting::poll});
  const ps::Event sleeping(context.device(), {.waiting = ps::Waiting::block});
  const auto wait_for = [](const ps::Event& event) {
    return [&event](ps::Item& item) {
      item.stream().record(event);
      event.synchronize();
    };
  };

  std::vector<ladder::Row> rows{
      ladder::measure_two_way(context, "no wait per item", {}),
      ladder::measure_two_way(context, "an event per item, spinning",
                              {.after_compute = wait_for(spinning)}),
      ladder::measure_two_way(context, "an event per item, polling",
                              {.after_compute = wait_for(polling)}),
      ladder::measure_two_way(context, "an event per item, sleeping",
                              {.after_compute = wait_for(sleeping)}),
      ladder::measure_two_way(
          context, "the stream per item",
          {.after_compute = [](ps::Item& item) { item.stream().synchronize(); }}),
      ladder::measure_two_way(
          context, "the device per item",
          {.after_compute = [&](ps::Item&) { context.device().synchronize(); }}),
  };
  for (ladder::Row& row : rows) {
    const double extra = row.seconds - rows.front().seconds;
    if (extra <= 0) continue;
    row.note += (row.note.empty() ? "" : "; ") +
                ps::format_seconds(extra / static_cast<double>(context.chunks())) +
                " lost per item";
  }
  return rows;
}

PENSTOCK_RUNG("synchronise",
              "What it costs to wait per item: for an event, the stream or the device.", run);

}  // namespace
