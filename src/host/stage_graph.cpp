#include "host/stage_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "host/backend.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {
constexpr std::size_t most_slots = 1 << 16;
}

MemoryView Ring::slot(std::uint64_t item) const {
  const MemoryView all = memory == Memory::pinned ? pinned.view() : device.view();
  return all.sub(static_cast<std::size_t>(item % depth) * bytes, bytes);
}

StageGraph::StageGraph(GraphOptions o) : options(std::move(o)) {
  if (options.depth == 0 || options.depth > most_slots) {
    throw_invalid("depth", fmt::format("between 1 and {}", most_slots),
                  std::to_string(options.depth));
  }
  if (options.pool && !(options.pool->device() == options.device)) {
    throw_invalid("pool", "a pool of " + options.device.name(),
                  "one of " + options.pool->device().name());
  }
}

void StageGraph::check_name(std::string_view name) const {
  if (name.empty()) throw_invalid("name", "a name", "an empty one");
  const auto same = [&](const auto& other) { return other.name == name; };
  if (std::any_of(stages.begin(), stages.end(), same) ||
      std::any_of(rings.begin(), rings.end(), same)) {
    throw_invalid("name", "a name that no other stage or ring uses", fmt::format("'{}'", name));
  }
  if (running) {
    throw_invalid("name", "a stage or ring that is added before items are run or pushed",
                  fmt::format("'{}', which comes too late", name));
  }
}

RingId StageGraph::add_ring(std::string_view name, const RingOptions& o) {
  check_name(name);
  if (o.bytes == 0) throw_invalid("bytes", "at least 1 byte per slot", "0");
  if (o.memory == Memory::host) {
    throw_invalid("memory", "pinned or device",
                  "host (copies from pageable memory cannot overlap)");
  }
  const std::size_t depth = o.depth == 0 ? options.depth : o.depth;
  if (depth > most_slots) {
    throw_invalid("depth", fmt::format("at most {}", most_slots), std::to_string(depth));
  }
  checked_mul(depth, o.bytes, "depth * bytes");
  Ring& ring = rings.emplace_back();
  ring.name = name;
  ring.memory = o.memory;
  ring.bytes = o.bytes;
  ring.depth = depth;
  linked_ = false;
  return {rings.size() - 1};
}

StageId StageGraph::add_device_stage(std::string_view name, StageOptions o,
                                     StageFunction function) {
  Stage stage;
  stage.function = std::move(function);
  stage.engine = o.engine;
  stage.priority = o.priority;
  stage.stream = std::move(o.stream);
  return add_stage(name, std::move(stage), o.after, o.uses);
}

StageId StageGraph::add_host_stage(std::string_view name, const HostStageOptions& o,
                                   StageFunction function) {
  AsyncFunction whole;
  if (function) {
    whole = [function = std::move(function)](Item& item, const Completion& done) {
      function(item);
      done();
    };
  }
  return add_async_stage(name, o, std::move(whole));
}

StageId StageGraph::add_async_stage(std::string_view name, const HostStageOptions& o,
                                    AsyncFunction function) {
  Stage stage;
  stage.async = std::move(function);
  stage.on_host = true;
  stage.engine = o.engine;
  return add_stage(name, std::move(stage), o.after, o.uses);
}

StageId StageGraph::add_stage(std::string_view name, Stage stage, const std::vector<StageId>& after,
                              const std::vector<RingId>& uses) {
  check_name(name);
  if (!stage.function && !stage.async) {
    throw_invalid("function", "something to call", "an empty function");
  }
  if (stage.stream && !(stage.stream->device() == options.device)) {
    throw_invalid("stream", "a stream of " + options.device.name(),
                  "one of " + stage.stream->device().name());
  }
  std::vector<bool> before(stages.size(), false);
  for (const StageId id : after) {
    if (id.value >= stages.size()) {
      throw_invalid("after", "stages that were added before",
                    fmt::format("stage number {}", id.value));
    }
    before[id.value] = true;
    stage.dependencies.push_back({id.value, 0});
    for (std::size_t i = 0; i < id.value; ++i) {
      if (precedes_[id.value][i]) before[i] = true;
    }
  }
  for (const RingId id : uses) {
    if (id.value >= rings.size()) {
      throw_invalid("uses", "rings that were added before",
                    fmt::format("ring number {}", id.value));
    }
    const Ring& ring = rings[id.value];
    if (!ring.users.empty() && !before[ring.users.front()]) {
      throw_invalid(
          "uses",
          fmt::format("ring '{}' only in stages after '{}', the stage that acquires its slots",
                      ring.name, stages[ring.users.front()].name),
          fmt::format("stage '{}', which does not come after it", name));
    }
    stage.rings.push_back(id.value);
  }
  const std::size_t number = stages.size();
  for (const RingId id : uses) rings[id.value].users.push_back(number);
  for (std::size_t i = 0; i < number; ++i) {
    if (before[i]) stage.ancestors.push_back(i);
  }
  before.resize(number + 1, false);
  precedes_.push_back(std::move(before));
  stage.name = name;
  stages.push_back(std::move(stage));
  linked_ = false;
  return {number};
}

bool StageGraph::precedes(std::size_t earlier, std::size_t later) const {
  return earlier < later && precedes_[later][earlier];
}

bool StageGraph::is_last(std::size_t stage) const {
  for (std::size_t later = stage + 1; later < stages.size(); ++later) {
    if (precedes(stage, later)) return false;
  }
  return true;
}

Pool& StageGraph::pool() {
  if (!options.pool) options.pool.emplace(options.device);
  return *options.pool;
}

// The stage that acquires a slot waits for the slot's last users; a user that comes before another
// user is done when that one is.
void StageGraph::link_rings() {
  for (Stage& stage : stages) {
    std::erase_if(stage.dependencies, [](const Dependency& d) { return d.lag > 0; });
  }
  for (const Ring& ring : rings) {
    if (ring.users.empty()) continue;
    for (const std::size_t user : ring.users) {
      const bool last = std::none_of(ring.users.begin(), ring.users.end(),
                                     [&](std::size_t other) { return precedes(user, other); });
      if (last) stages[ring.users.front()].dependencies.push_back({user, ring.depth});
    }
  }
}

// The host must know a device stage's completions where a host stage waits for them, and where
// nothing comes after it.
void StageGraph::track() {
  std::vector<bool> followed(stages.size(), false);
  for (Stage& stage : stages) stage.tracked = false;
  for (const Stage& stage : stages) {
    for (const Dependency& d : stage.dependencies) {
      if (d.lag == 0) followed[d.stage] = true;
      if (stage.on_host) stages[d.stage].tracked = true;
    }
  }
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (!followed[i]) stages[i].tracked = true;
    if (stages[i].on_host) stages[i].tracked = false;
  }
}

bool StageGraph::times_device(const Recorder* recorder) const {
  if (recorder == nullptr) return false;
  return options.device.kind() != DeviceKind::cuda || !recorder->watches_device();
}

void StageGraph::prepare(const char* call, const Recorder* recorder, const Stream* after) {
  if (!linked_) {
    link_rings();
    track();
    std::size_t deepest = options.depth;
    for (const Ring& ring : rings) deepest = std::max(deepest, ring.depth);
    // Deep enough that the device has work for milliseconds while the enqueuing thread sleeps.
    window = options.window != 0 ? options.window : std::max<std::size_t>(16, 12 * deepest);
    linked_ = true;
  }
  if (after != nullptr) after->impl().refuse_capture(call);
  for (const Stage& stage : stages) {
    if (stage.stream) stage.stream->impl().refuse_capture(call);
  }
  const Device& device = options.device;
  for (Ring& ring : rings) {
    if (ring.users.empty()) {
      throw_invalid("ring", "a ring that at least one stage uses",
                    fmt::format("'{}', which no stage uses", ring.name));
    }
    const std::size_t bytes = ring.depth * ring.bytes;
    if (ring.memory == Memory::pinned) {
      if (ring.pinned.bytes() == 0) ring.pinned = PinnedBuffer(device, bytes);
    } else if (ring.device.bytes() == 0) {
      ring.device = DeviceBuffer(device, bytes);
    }
  }
  const auto fill = [&](std::vector<Event>& events, const EventOptions& o) {
    while (events.size() < window) events.emplace_back(device, o);
  };
  for (Stage& stage : stages) {
    if (stage.on_host) continue;
    if (!stage.stream) stage.stream.emplace(device, StreamOptions{stage.priority});
    fill(stage.done, {.waiting = options.waiting});
    if (times_device(recorder)) {
      fill(stage.begin, {.timing = true});
      fill(stage.end, {.timing = true});
    }
  }
  if (after != nullptr && (!fork || fork->device() != after->device())) {
    fork.emplace(after->device());
  }
}

}  // namespace ps::detail
