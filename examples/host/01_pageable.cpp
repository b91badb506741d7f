// Where everybody starts: ordinary memory, one thing at a time. The driver stages every upload
// through a small page-locked buffer of its own, and the caller waits for each step.
#include <cstring>
#include <memory>

#include "penstock/host/stream.h"
#include "penstock/ops/iterate.h"
#include "support/context.h"

namespace {

std::vector<ladder::Row> run(ladder::Context& context) {
  const ps::MemoryView source = context.data().input();
  const auto copy_of_input = std::make_unique_for_overwrite<std::byte[]>(source.bytes);
  std::memcpy(copy_of_input.get(), source.data, source.bytes);
  const ps::MemoryView pageable{copy_of_input.get(), source.bytes, {ps::Memory::host}};

  const ps::Stream stream(context.device());
  const ps::DeviceBuffer slot(context.device(), context.chunk());

  return {context.measure("pageable, sequential", ps::Ways::two, [&](ladder::Trace& trace) {
    for (std::size_t i = 0; i < context.chunks(); ++i) {
      const ps::MemoryView out = context.result(i);
      const ps::MemoryView in = pageable.sub(i * context.chunk(), out.bytes);
      const ps::MemoryView work = slot.view().sub(0, out.bytes);

      trace(ps::Engine::upload, i, stream,
            [&] { ps::copy(work, in, stream, {.allow_pageable = true}); });
      stream.synchronize();

      trace(ps::Engine::compute, i, stream, [&] {
        ps::iterate({.in = ps::floats(work), .out = ps::floats(out), .rounds = context.rounds()},
                    stream);
      });
      stream.synchronize();
    }
  })};
}

PENSTOCK_RUNG("pageable", "Copies from pageable memory, which the driver stages, and no overlap.",
              run);

}  // namespace
