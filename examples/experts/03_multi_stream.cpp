// More streams for copies: experts are loaded on two or three streams in turn. A link that one
// stream keeps busy gains nothing, because the copies share it.
#include <fmt/format.h>

#include "experts/support/slots.h"

namespace {

std::vector<ladder::Row> run(ladder::Context& context) {
  auto& layers = context.shared<ladder::Layers>();
  const auto slots = ladder::make_slots(context, 4, layers.block_bytes());
  const ps::Stream compute(context.device());
  std::vector<ladder::Row> rows;
  for (const std::size_t count : {1, 2, 3}) {
    std::vector<ps::Stream> uploads;
    for (std::size_t i = 0; i < count; ++i) uploads.emplace_back(context.device());
    rows.push_back(layers.measure(
        fmt::format("copies on {} stream{}", count, count == 1 ? "" : "s"),
        [&](ladder::Trace& trace) {
          std::size_t i = 0;
          for (const ladder::Expert& expert : layers.experts()) {
            const ladder::ExpertSlot& slot = slots[i % slots.size()];
            const ps::Stream& upload = uploads[i % count];
            upload.wait(slot.free);
            trace(ps::Engine::upload, i, upload,
                  [&] { ps::copy(slot.memory.view(), layers.weights(expert), upload); });
            upload.record(slot.loaded);
            compute.wait(slot.loaded);
            trace(ps::Engine::compute, i, compute,
                  [&] { layers.compute(expert, slot.memory.view(), compute); });
            compute.record(slot.free);
            ++i;
          }
          compute.synchronize();
        }));
  }
  return rows;
}

PENSTOCK_RUNG("multi-stream",
              "Copies on one, two or three streams share the bandwidth of one link.", run);

}  // namespace
