#include "penstock/weights/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/pipeline.h"
#include "weights/load_plan.h"
#include "weights/rows.h"

namespace ps {
namespace {

void check_load(const LoadOptions& options) {
  if (options.slots == 0) detail::throw_invalid("slots", "at least 1", "0");
  if (options.slot_bytes == 0 || options.slot_bytes % 4096 != 0) {
    detail::throw_invalid("slot_bytes", "a multiple of 4 KiB above 0",
                          std::to_string(options.slot_bytes));
  }
}

detail::LoadRange checked_target(const Weights& weights, const LoadTarget& target,
                                 const Device& device, const std::string& where) {
  if (target.tensor >= weights.tensors().size()) {
    detail::throw_invalid(where + "tensor",
                          fmt::format("an index below {}", weights.tensors().size()),
                          std::to_string(target.tensor));
  }
  const WeightInfo& tensor = weights.tensors()[target.tensor];
  const MemoryView& to = target.to;
  const detail::ByteRange range =
      detail::checked_rows(tensor, target.first_row, target.rows, to, where);
  if (to.data == nullptr && to.bytes > 0) {
    detail::throw_invalid(where + "to", "a pointer", fmt::format("null with {} bytes", to.bytes));
  }
  if (to.place.memory == Memory::device && to.place != device.place()) {
    detail::throw_invalid(where + "to", "memory of " + device.name(), name(to.place));
  }
  return {tensor.file, tensor.offset + range.offset, to};
}

// Runs the pieces through page-locked slots. Whether the load was cancelled.
bool run_load(const Weights& weights, const std::vector<detail::LoadPiece>& pieces,
              std::uint64_t total, const LoadOptions& options) {
  Pipeline pipeline({.device = options.device, .depth = options.slots});
  const auto slots =
      pipeline.ring("slots", {.memory = Memory::pinned, .bytes = options.slot_bytes});
  const auto piece_of = [&](const Item& item) -> const detail::LoadPiece& {
    return pieces[static_cast<std::size_t>(item.index())];
  };
  const auto read = pipeline.async_stage(
      "read", {.uses = {slots}, .engine = Engine::disk}, [&](Item& item, const Completion& done) {
        const detail::LoadPiece& piece = piece_of(item);
        weights.files()[piece.file].read(piece.offset,
                                         item.slot(slots).sub(piece.in_slot, piece.bytes), done,
                                         {.stop = options.stop});
      });
  pipeline.stage("upload", {.after = {read}, .uses = {slots}, .engine = Engine::upload},
                 [&](Item& item) {
                   for (const detail::LoadCopy& part : piece_of(item).copies) {
                     copy(part.to, item.slot(slots).sub(part.from, part.to.bytes), item.stream());
                   }
                 });
  RunOptions run{.items = pieces.size(), .stop = options.stop, .after = options.after};
  if (options.progress) {
    run.progress = [&, counted = std::uint64_t{0},
                    bytes = std::uint64_t{0}](const Progress& progress) mutable {
      for (; counted < progress.done; ++counted) bytes += pieces[counted].bytes;
      options.progress(bytes, total);
    };
  }
  return pipeline.run(run).cancelled;
}

}  // namespace

void load(const Weights& weights, std::span<const LoadTarget> targets, LoadOptions options) {
  check_load(options);
  std::vector<detail::LoadRange> ranges;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    ranges.push_back(
        checked_target(weights, targets[i], options.device, fmt::format("targets[{}].", i)));
  }
  const std::vector<detail::LoadPiece> pieces =
      detail::plan_load(std::move(ranges), options.slot_bytes);
  std::uint64_t total = 0;
  std::size_t largest = 0;
  for (const detail::LoadPiece& piece : pieces) {
    total += piece.bytes;
    largest = std::max(largest, piece.in_slot + piece.bytes);
  }
  if (pieces.empty()) return;
  // Small loads need not lock more memory than they use.
  options.slots = std::min(options.slots, pieces.size());
  options.slot_bytes = largest;
  bool cancelled = false;
  try {
    cancelled = run_load(weights, pieces, total, options);
  } catch (const PipelineError& error) {
    std::rethrow_exception(error.cause());  // the stage means nothing to the caller
  }
  if (cancelled) throw Cancelled("load: cancelled");
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i == 0 || pieces[i].file != pieces[i - 1].file) weights.check_unchanged(pieces[i].file);
  }
}

}  // namespace ps
