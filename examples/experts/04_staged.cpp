// Trap: loading into a staging buffer, and from there into the slot by a copy on the device. The
// copy needs an engine, memory bandwidth and one more hand-over per expert.
#include "experts/support/slots.h"

namespace {

std::vector<ladder::Row> run(ladder::Context& context) {
  auto& layers = context.shared<ladder::Layers>();
  const ps::Stream upload(context.device()), stage(context.device()), compute(context.device());
  const auto slots = ladder::make_slots(context, 2, layers.block_bytes());
  const auto staging = ladder::make_slots(context, 2, layers.block_bytes());

  return {layers.measure("through a staging buffer", [&](ladder::Trace& trace) {
    std::size_t i = 0;
    for (const ladder::Expert& expert : layers.experts()) {
      const ladder::ExpertSlot &slot = slots[i % slots.size()], &room = staging[i % staging.size()];
      upload.wait(room.free);
      trace(ps::Engine::upload, i, upload,
            [&] { ps::copy(room.memory.view(), layers.weights(expert), upload); });
      upload.record(room.loaded);

      stage.wait(room.loaded);
      stage.wait(slot.free);
      trace(ps::Engine::device_copy, i, stage,
            [&] { ps::copy(slot.memory.view(), room.memory.view(), stage); });
      stage.record(room.free);
      stage.record(slot.loaded);

      compute.wait(slot.loaded);
      trace(ps::Engine::compute, i, compute,
            [&] { layers.compute(expert, slot.memory.view(), compute); });
      compute.record(slot.free);
      ++i;
    }
    compute.synchronize();
  })};
}

PENSTOCK_RUNG("staged", "A trap: an additional copy on the device between upload and products.",
              run);

}  // namespace
