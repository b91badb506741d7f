// The same steps from page-locked memory: the copy engine reads it directly. Still one thing at a
// time, so the engines take turns being idle.
#include "penstock/host/stream.h"
#include "penstock/ops/iterate.h"
#include "support/context.h"

namespace {

std::vector<ladder::Row> run(ladder::Context& context) {
  const ps::Stream stream(context.device());
  const ps::DeviceBuffer slot(context.device(), context.chunk());

  return {context.measure("page-locked, sequential", ps::Ways::two, [&](ladder::Trace& trace) {
    for (std::size_t i = 0; i < context.chunks(); ++i) {
      const ps::MemoryView in = context.input(i), out = context.result(i);
      const ps::MemoryView work = slot.view().sub(0, in.bytes);

      trace(ps::Engine::upload, i, stream, [&] { ps::copy(work, in, stream); });
      stream.synchronize();

      trace(ps::Engine::compute, i, stream, [&] {
        ps::iterate({.in = ps::floats(work), .out = ps::floats(out), .rounds = context.rounds()},
                    stream);
      });
      stream.synchronize();
    }
  })};
}

PENSTOCK_RUNG("page-locked",
              "Copies from page-locked memory, which the copy engine reads directly.", run);

}  // namespace
