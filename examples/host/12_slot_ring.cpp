// Trap: page-locking memory for every batch. Locking goes at about 1.7 GB/s and unlocking waits for
// the device. A SlotRing locks a few slots once and hands each out again when the device is done.
#include <cstring>

#include "penstock/host/slot_ring.h"
#include "penstock/host/stream.h"
#include "support/context.h"

namespace {

std::vector<ladder::Row> run(ladder::Context& context) {
  const ps::Stream stream(context.device());
  // What a reader or a decoder would do: the batch is written by the host.
  const auto fill_batch = [&](ps::MemoryView slot, std::size_t i) {
    std::memcpy(slot.data, context.input(i).data, slot.bytes);
  };

  const auto lock_per_batch = [&] {
    for (std::size_t i = 0; i < context.chunks(); ++i) {
      const ps::MemoryView target = context.result(i);
      const ps::PinnedBuffer batch(context.device(), target.bytes);
      fill_batch(batch.view(), i);
      ps::copy(target, batch.view(), stream);
      stream.synchronize();  // the batch is unlocked next and must not be in use any more
    }
  };

  ps::SlotRing ring(context.device(), {.slots = 4, .slot_bytes = context.chunk()});
  std::uint64_t allocations = 0;
  const auto slots_from_ring = [&] {
    const std::uint64_t before = context.device().allocations();
    for (std::size_t i = 0; i < context.chunks(); ++i) {
      const ps::MemoryView target = context.result(i);
      ps::SlotRing::Slot slot = ring.acquire();
      const ps::MemoryView batch = slot.view().sub(0, target.bytes);
      fill_batch(batch, i);
      ps::copy(target, batch, stream);
      slot.release_after(stream);
    }
    stream.synchronize();
    allocations += context.device().allocations() - before;
  };

  const auto measure = [&](const char* label, const auto& loop) {
    context.data().poison();
    loop();
    context.data().check_result(0);  // zero rounds: the input itself
    return ladder::Row{.label = label, .seconds = context.median_seconds(loop)};
  };
  std::vector<ladder::Row> rows{measure("page-locked for every batch", lock_per_batch),
                                measure("four slots in a ring", slots_from_ring)};
  rows.back().note = std::to_string(allocations) + " allocations for " +
                     std::to_string(ring.statistics().acquired) + " batches";
  return rows;
}

PENSTOCK_RUNG("slot-ring", "Page-locking memory per batch, compared with a ring of locked slots.",
              run);

}  // namespace
