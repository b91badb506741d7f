// Reading files into GPU memory: reads and uploads overlap, through a few page-locked slots.
#include <algorithm>

#include "borrowed.h"
#include "errors.h"
#include "interpreter.h"
#include "penstock/base/checked.h"
#include "penstock/host/pipeline.h"
#include "storage.h"

namespace ps::python {
namespace {

constexpr std::size_t slot_bytes = 8 * MiB;

void upload_file(const File& file, std::uint64_t offset, MemoryView to, const Stream& stream) {
  Pipeline pipeline({.device = stream.device(), .depth = 4});
  const std::size_t chunk = std::min(slot_bytes, to.bytes);
  const auto part = [&](const Item& item) {
    const std::size_t at = item.index() * chunk;
    return to.sub(at, std::min(chunk, to.bytes - at));
  };
  const auto slots = pipeline.ring("slots", {.memory = Memory::pinned, .bytes = chunk});
  const auto read = pipeline.async_stage(
      "read", {.uses = {slots}, .engine = Engine::disk}, [&](Item& item, const Completion& done) {
        file.read(offset + item.index() * chunk, item.slot(slots).sub(0, part(item).bytes), done);
      });
  pipeline.stage("upload",
                 {.after = {read}, .uses = {slots}, .engine = Engine::upload, .stream = stream},
                 [&](Item& item) {
                   const MemoryView piece = part(item);
                   copy(piece, item.slot(slots).sub(0, piece.bytes), item.stream());
                 });
  RunOptions run{.items = ceil_div(to.bytes, chunk)};
  run.progress = [](const Progress&) { throw_if_interrupted(); };
  try {
    pipeline.run(run);
  } catch (const PipelineError& error) {
    std::rethrow_exception(error.cause());  // the stage means nothing to the caller
  }
}

}  // namespace

void OpenedFile::read_to_gpu(std::uint64_t offset, nb::handle out, int gpu) const {
  const Stream stream(Device::cuda(gpu));
  const Borrowed to(
      out,
      {.argument = "out", .access = Access::write, .elements = Elements::bytes, .stream = &stream});
  const MemoryView memory = to.memory();
  const File held = file();  // stays open if close() is called meanwhile
  if (memory.bytes == 0) return;
  without_lock([&] { naming(path_, [&] { upload_file(held, offset, memory, stream); }); });
}

}  // namespace ps::python
