// Experts that are stored by ps::compress(): two thirds of the bytes pass the link, and the GPU
// decodes one expert while the next one is loaded. The result has the same bits.
#include <fmt/format.h>

#include <numeric>

#include "experts/support/slots.h"
#include "penstock/ops/compress.h"

namespace {

// One expert, compressed, in page-locked memory.
ps::PinnedBuffer compressed(const ladder::Context& context, ps::MemoryView block) {
  const auto elements = static_cast<std::int64_t>(block.bytes / 2);
  std::vector<std::byte> room(ps::compressed_bytes_limit(elements));
  const std::size_t bytes =
      ps::compress({.x = ps::TensorView(block.data, ps::DType::bf16, {elements}),
                    .out = ps::TensorView(room.data(), ps::DType::u8,
                                          {static_cast<std::int64_t>(room.size())})});
  ps::PinnedBuffer result(context.device(), bytes);
  std::copy_n(room.data(), bytes, result.view().data);
  return result;
}

std::vector<ladder::Row> run(ladder::Context& context) {
  auto& layers = context.shared<ladder::Layers>();
  std::vector<ps::PinnedBuffer> stored;
  std::size_t bytes = 0, largest = 0;
  for (const ladder::Expert& expert : layers.experts()) {
    stored.push_back(compressed(context, layers.weights(expert)));
    bytes += stored.back().bytes();
    largest = std::max(largest, stored.back().bytes());
  }
  const ps::Stream upload(context.device()), decode(context.device()), compute(context.device());
  const auto slots = ladder::make_slots(context, 2, layers.block_bytes());
  const auto arrived = ladder::make_slots(context, 2, largest);

  const auto load = [&](std::size_t i, const ladder::ExpertSlot& room) {
    ps::copy(room.memory.view().sub(0, stored[i].bytes()), stored[i].view(), upload);
  };
  const auto expand = [&](std::size_t i, const ladder::ExpertSlot& room,
                          const ladder::ExpertSlot& slot) {
    const ps::Place place = context.device().place();
    ps::decompress(
        {.compressed = ps::TensorView(room.memory.view().data, ps::DType::u8,
                                      {static_cast<std::int64_t>(stored[i].bytes())}, place),
         .out = ps::TensorView(slot.memory.view().data, ps::DType::bf16,
                               {static_cast<std::int64_t>(layers.block_bytes() / 2)}, place)},
        decode);
  };
  const auto forward = [&](ladder::Trace& trace) {
    std::size_t i = 0;
    for (const ladder::Expert& expert : layers.experts()) {
      const ladder::ExpertSlot &slot = slots[i % slots.size()], &room = arrived[i % arrived.size()];
      upload.wait(room.free);
      trace(ps::Engine::upload, i, upload, [&] { load(i, room); });
      upload.record(room.loaded);

      decode.wait(room.loaded);
      decode.wait(slot.free);
      trace(ps::Engine::compute, i, decode, [&] { expand(i, room, slot); });
      decode.record(room.free);
      decode.record(slot.loaded);

      compute.wait(slot.loaded);
      trace(ps::Engine::compute, i, compute,
            [&] { layers.compute(expert, slot.memory.view(), compute); });
      compute.record(slot.free);
      ++i;
    }
    compute.synchronize();
  };
  const auto only_load = [&] {
    for (std::size_t i = 0; i < stored.size(); ++i) load(i, arrived[i % arrived.size()]);
    upload.synchronize();
  };
  ladder::Row row = layers.measure("compressed, decoded on the device", forward, only_load);
  row.note += fmt::format(
      "{}{:.2f} of the bytes", row.note.empty() ? "" : "; ",
      static_cast<double>(bytes) / static_cast<double>(stored.size() * layers.block_bytes()));
  return {row};
}

PENSTOCK_RUNG("compressed", "Compressed experts are decompressed while the next ones are copied.",
              run);

}  // namespace
