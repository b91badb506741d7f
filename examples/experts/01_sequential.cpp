// One stream and one slot: each expert is loaded, then computed. The link waits for the products,
// and the products wait for the link.
#include "experts/support/layers.h"

namespace {

std::vector<ladder::Row> run(ladder::Context& context) {
  auto& layers = context.shared<ladder::Layers>();
  const ps::Stream stream(context.device());
  const ps::DeviceBuffer slot(context.device(), layers.block_bytes());

  return {layers.measure("one stream, one slot", [&](ladder::Trace& trace) {
    std::size_t i = 0;
    for (const ladder::Expert& expert : layers.experts()) {
      trace(ps::Engine::upload, i, stream,
            [&] { ps::copy(slot.view(), layers.weights(expert), stream); });
      trace(ps::Engine::compute, i, stream, [&] { layers.compute(expert, slot.view(), stream); });
      ++i;
    }
    stream.synchronize();
  })};
}

PENSTOCK_RUNG("sequential", "Each expert is loaded and then computed, on one stream.", run);

}  // namespace
