// A copy within the device joins in. It takes a third copy engine, so that neither direction of the
// link has to wait for it.
#include "penstock/host/pipeline.h"
#include "penstock/ops/iterate.h"
#include "support/context.h"

namespace {

ladder::Row measure(ladder::Context& context, std::string label, std::size_t depth) {
  ps::Pipeline pipeline({.device = context.device(), .depth = depth});
  const ps::RingOptions slots{.memory = ps::Memory::device, .bytes = context.chunk()};
  const ps::RingId work = pipeline.ring("work", slots), done = pipeline.ring("done", slots);
  const auto part = [&](ps::Item& item, ps::RingId ring) {
    return item.slot(ring).sub(0, context.input(item.index()).bytes);
  };

  const ps::StageId upload =
      pipeline.stage("upload", {.uses = {work}, .engine = ps::Engine::upload}, [&](ps::Item& item) {
        ps::copy(part(item, work), context.input(item.index()), item.stream());
      });

  const ps::StageId compute = pipeline.stage(
      "compute", {.after = {upload}, .uses = {work}, .engine = ps::Engine::compute},
      [&](ps::Item& item) {
        const ps::TensorView in_place = ps::floats(part(item, work));
        ps::iterate({.in = in_place, .out = in_place, .rounds = context.rounds()}, item.stream());
      });

  const ps::StageId move = pipeline.stage(
      "device copy", {.after = {compute}, .uses = {work, done}, .engine = ps::Engine::device_copy},
      [&](ps::Item& item) { ps::copy(part(item, done), part(item, work), item.stream()); });

  pipeline.stage("download", {.after = {move}, .uses = {done}, .engine = ps::Engine::download},
                 [&](ps::Item& item) {
                   ps::copy(context.output(item.index()), part(item, done), item.stream());
                 });

  return context.measure(std::move(label), ps::Ways::four, [&](ladder::Trace& trace) {
    pipeline.run({.items = context.chunks(), .recorder = trace.recorder()});
  });
}

std::vector<ladder::Row> run(ladder::Context& context) {
  const int copy_engines = context.device().capabilities().copy_engines;
  if (context.on_gpu() && copy_engines < 3) {
    return ladder::not_here("needs three copy engines; this GPU has " +
                            std::to_string(copy_engines));
  }
  return {measure(context, "four-way, one slot of each ring", 1),
          measure(context, "four-way, four slots", 4)};
}

PENSTOCK_RUNG("four-way", "A copy within the device overlaps uploads, kernels and downloads.", run);

}  // namespace
