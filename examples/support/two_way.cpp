#include "support/two_way.h"

#include <utility>

#include "penstock/ops/iterate.h"

namespace ladder {

ps::Pipeline make_two_way(Context& context, TwoWayOptions options) {
  ps::Pipeline pipeline({.device = context.device(), .depth = options.depth});
  const ps::RingId work =
      pipeline.ring("work", {.memory = ps::Memory::device, .bytes = context.chunk()});

  const ps::StageId upload = pipeline.stage(
      "upload", {.uses = {work}, .engine = ps::Engine::upload, .stream = options.upload},
      [&context, work](ps::Item& item) {
        const ps::MemoryView in = context.input(item.index());
        ps::copy(item.slot(work).sub(0, in.bytes), in, item.stream());
      });

  pipeline.stage(
      "compute",
      {.after = {upload}, .uses = {work}, .engine = ps::Engine::compute, .stream = options.compute},
      [&context, work, after = std::move(options.after_compute)](ps::Item& item) {
        const ps::MemoryView out = context.result(item.index());
        const ps::MemoryView in = item.slot(work).sub(0, out.bytes);
        ps::iterate({.in = ps::floats(in), .out = ps::floats(out), .rounds = context.rounds()},
                    item.stream());
        if (after) after(item);
      });
  return pipeline;
}

Row measure_two_way(Context& context, std::string label, TwoWayOptions options) {
  ps::Pipeline pipeline = make_two_way(context, std::move(options));
  return context.measure(std::move(label), ps::Ways::two, [&](Trace& trace) {
    pipeline.run({.items = context.chunks(), .recorder = trace.recorder()});
  });
}

}  // namespace ladder
