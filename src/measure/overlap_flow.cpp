#include "measure/overlap_flow.h"

#include <algorithm>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/ops/iterate.h"

namespace ps::detail {

OverlapFlow::OverlapFlow(const Yardstick& yardstick, const FlowOptions& options)
    : yardstick_(yardstick),
      options_(options),
      chunks_per_item_(ceil_div(options.item_bytes, options.chunk)),
      chunks_(yardstick.bytes() / options.item_bytes * chunks_per_item_),
      pipeline_({.device = yardstick.device(), .depth = options.depth}) {
  if (options.sequential) common_.emplace(yardstick.device());
  const RingOptions slots{.memory = Memory::device, .bytes = options.chunk};
  const RingId work = pipeline_.ring("work", slots);

  StageId last =
      pipeline_.stage("upload", stage(Engine::upload, {}, {work}), [this, work](Item& item) {
        copy(slot(item, work), piece(yardstick_.input(), item.index()), item.stream());
      });

  // Without a download the result stays on the device, where it is checked.
  const bool stays = options.ways == Ways::two;
  last = pipeline_.stage(
      "compute", stage(Engine::compute, last, {work}), [this, work, stays](Item& item) {
        const MemoryView in = slot(item, work);
        const MemoryView out = stays ? piece(yardstick_.result(), item.index()) : in;
        iterate({.in = floats(in), .out = floats(out), .rounds = options_.rounds}, item.stream());
      });
  if (stays) return;

  RingId ready = work;
  if (options.ways == Ways::four) {
    ready = pipeline_.ring("ready", slots);
    last = pipeline_.stage("device copy", stage(Engine::device_copy, last, {work, ready}),
                           [this, work, ready](Item& item) {
                             copy(slot(item, ready), slot(item, work), item.stream());
                           });
  }
  pipeline_.stage("download", stage(Engine::download, last, {ready}), [this, ready](Item& item) {
    copy(piece(yardstick_.output(), item.index()), slot(item, ready), item.stream());
  });
}

StageOptions OverlapFlow::stage(Engine engine, std::optional<StageId> after,
                                std::vector<RingId> uses) const {
  StageOptions result{.uses = std::move(uses), .engine = engine, .stream = common_};
  if (after) result.after.push_back(*after);
  return result;
}

// Items are cut one by one; the last chunk of each may be shorter.
MemoryView OverlapFlow::piece(MemoryView whole, std::uint64_t chunk) const {
  const std::size_t item = static_cast<std::size_t>(chunk) / chunks_per_item_;
  const std::size_t begin = static_cast<std::size_t>(chunk) % chunks_per_item_ * options_.chunk;
  return whole.sub(item * options_.item_bytes + begin,
                   std::min(options_.chunk, options_.item_bytes - begin));
}

MemoryView OverlapFlow::slot(const Item& item, RingId ring) const {
  return item.slot(ring).sub(0, piece(yardstick_.input(), item.index()).bytes);
}

RunReport OverlapFlow::run(Recorder* recorder, const std::stop_token& stop) {
  RunReport report = pipeline_.run({.items = chunks_, .stop = stop, .recorder = recorder});
  if (report.cancelled) throw Cancelled();
  return report;
}

void OverlapFlow::run_checked(const std::stop_token& stop) {
  yardstick_.poison();
  run(nullptr, stop);
  if (options_.ways == Ways::two) {
    yardstick_.check_result(options_.rounds);
  } else {
    yardstick_.check_output(options_.rounds);
  }
}

}  // namespace ps::detail
