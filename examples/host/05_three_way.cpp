// Upload, compute and download at once: both directions of the link are busy, and the link's own
// limit for both becomes the floor.
#include "penstock/host/pipeline.h"
#include "penstock/ops/iterate.h"
#include "support/context.h"

namespace {

ladder::Row measure(ladder::Context& context, std::string label, std::size_t depth) {
  ps::Pipeline pipeline({.device = context.device(), .depth = depth});
  const ps::RingId work =
      pipeline.ring("work", {.memory = ps::Memory::device, .bytes = context.chunk()});

  const ps::StageId upload =
      pipeline.stage("upload", {.uses = {work}, .engine = ps::Engine::upload}, [&](ps::Item& item) {
        const ps::MemoryView in = context.input(item.index());
        ps::copy(item.slot(work).sub(0, in.bytes), in, item.stream());
      });

  const ps::StageId compute = pipeline.stage(
      "compute", {.after = {upload}, .uses = {work}, .engine = ps::Engine::compute},
      [&](ps::Item& item) {
        const ps::TensorView in_place =
            ps::floats(item.slot(work).sub(0, context.input(item.index()).bytes));
        ps::iterate({.in = in_place, .out = in_place, .rounds = context.rounds()}, item.stream());
      });

  pipeline.stage("download", {.after = {compute}, .uses = {work}, .engine = ps::Engine::download},
                 [&](ps::Item& item) {
                   const ps::MemoryView out = context.output(item.index());
                   ps::copy(out, item.slot(work).sub(0, out.bytes), item.stream());
                 });

  return context.measure(std::move(label), ps::Ways::three, [&](ladder::Trace& trace) {
    pipeline.run({.items = context.chunks(), .recorder = trace.recorder()});
  });
}

std::vector<ladder::Row> run(ladder::Context& context) {
  return {measure(context, "three-way, one slot (sequential)", 1),
          measure(context, "three-way, four slots", 4)};
}

PENSTOCK_RUNG("three-way", "Uploads, kernels and downloads overlap and use the link both ways.",
              run);

}  // namespace
