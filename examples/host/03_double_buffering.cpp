// Two slots and two streams, by hand: while one slot is computed on, the other is filled. Events
// order the streams on the device, and the host waits once, at the end.
#include <array>

#include "penstock/host/event.h"
#include "penstock/host/stream.h"
#include "penstock/ops/iterate.h"
#include "support/context.h"

namespace {

struct Slot {
  explicit Slot(ladder::Context& context)
      : memory(context.device(), context.chunk()),
        filled(context.device()),
        free(context.device()) {}

  ps::DeviceBuffer memory;
  ps::Event filled, free;
};

std::vector<ladder::Row> run(ladder::Context& context) {
  const ps::Stream upload(context.device()), compute(context.device());
  const std::array slots{Slot(context), Slot(context)};

  return {context.measure("two streams, two slots", ps::Ways::two, [&](ladder::Trace& trace) {
    for (std::size_t i = 0; i < context.chunks(); ++i) {
      const Slot& slot = slots[i % slots.size()];
      const ps::MemoryView in = context.input(i), out = context.result(i);
      const ps::MemoryView work = slot.memory.view().sub(0, in.bytes);

      upload.wait(slot.free);  // item i - 2 was computed on; never recorded counts as free
      trace(ps::Engine::upload, i, upload, [&] { ps::copy(work, in, upload); });
      upload.record(slot.filled);

      compute.wait(slot.filled);
      trace(ps::Engine::compute, i, compute, [&] {
        ps::iterate({.in = ps::floats(work), .out = ps::floats(out), .rounds = context.rounds()},
                    compute);
      });
      compute.record(slot.free);
    }
    compute.synchronize();
  })};
}

PENSTOCK_RUNG("double-buffering",
              "Uploads overlap kernels, with two streams and two slots, written by hand.", run);

}  // namespace
