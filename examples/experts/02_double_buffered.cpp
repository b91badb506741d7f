// Two streams and two slots: while one expert is computed, the next one is loaded.
#include "experts/support/slots.h"

namespace {

std::vector<ladder::Row> run(ladder::Context& context) {
  auto& layers = context.shared<ladder::Layers>();
  const ps::Stream upload(context.device()), compute(context.device());
  const auto slots = ladder::make_slots(context, 2, layers.block_bytes());

  return {layers.measure("two streams, two slots", [&](ladder::Trace& trace) {
    std::size_t i = 0;
    for (const ladder::Expert& expert : layers.experts()) {
      const ladder::ExpertSlot& slot = slots[i % slots.size()];
      upload.wait(slot.free);  // never recorded counts as free
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
  })};
}

PENSTOCK_RUNG("double-buffered", "The next expert is loaded while the current one is computed.",
              run);

}  // namespace
