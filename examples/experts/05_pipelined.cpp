// ps::StreamedExperts: the device says which experts have tokens, a thread of the library copies
// them, and the products of several experts are one launch. Nothing waits for the host.
#include "experts/support/layers.h"
#include "penstock/outofcore/experts.h"

namespace {

std::vector<ladder::Row> run(ladder::Context& context) {
  auto& layers = context.shared<ladder::Layers>();
  const ps::Stream stream(context.device());
  const ps::ExpertShape& shape = layers.work().shape();
  ps::StreamedExperts experts({.store = layers.work().store(),
                               .device = context.device(),
                               .device_bytes = ps::StreamedExperts::least_bytes(shape)});
  const auto forward = [&] {
    experts.clear();  // nothing is left of the run before
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      experts.forward(layer, layers.work().call(layer), stream);
    }
    stream.synchronize();
    experts.check();
  };
  if (context.on_gpu()) {
    return {layers.measure("StreamedExperts", [&](ladder::Trace&) { forward(); })};
  }
  ladder::Row row = layers.time("StreamedExperts", forward);
  row.note = "on the CPU device nothing is loaded";
  return {row};
}

PENSTOCK_RUNG("pipelined", "ps::StreamedExperts with the fewest slots and an empty cache.", run);

}  // namespace
