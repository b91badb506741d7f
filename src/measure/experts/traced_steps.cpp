#include "measure/experts/traced_steps.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "outofcore/expert_groups.h"

namespace ps::detail {
namespace {

constexpr std::size_t events_per_group = 3;

}  // namespace

void TracedSteps::begin() {
  const std::lock_guard lock(mutex_);
  call_.clear();
  calls_.clear();
  clock_.emplace(stream_);
}

// Makes an event only where nothing is copied: there, a call may have more groups.
Event TracedSteps::mark() {
  if (unused_.empty()) return Event(stream_.device(), {.timing = true});
  Event event = unused_.back();
  unused_.pop_back();
  return event;
}

void TracedSteps::plan(const MoeOptions& options, const Stream& stream) {
  {
    const std::lock_guard lock(mutex_);
    if (clock_) {
      call_[options.ids.data()] = calls_.size();
      calls_.push_back({.whole = options.ids.elements() >= whole_pairs * experts_});
      // All of them, and here: below, the stream may wait for copies that are not enqueued yet. If
      // CUDA then waited for the device before it made an event, they never would be.
      while (unused_.size() < events_per_group * most_expert_groups) {
        unused_.emplace_back(stream_.device(), EventOptions{.timing = true});
      }
    }
  }
  ExpertSteps::plan(options, stream);
}

void TracedSteps::take_slots(const std::int32_t* from, const TensorView& slots,
                             const Stream& stream) {
  {
    const std::lock_guard lock(mutex_);
    if (clock_) {
      arrived_ = mark();
      stream.record(*arrived_);
    }
  }
  ExpertSteps::take_slots(from, slots, stream);
}

void TracedSteps::experts(const MoeOptions& options, const Stream& stream) {
  const std::lock_guard lock(mutex_);
  const auto call = clock_ ? call_.find(options.ids.data()) : call_.end();
  if (call == call_.end()) return ExpertSteps::experts(options, stream);
  Marks marks{.arrived = std::exchange(arrived_, {}), .begin = mark(), .end = mark()};
  stream.record(marks.begin);
  ExpertSteps::experts(options, stream);
  stream.record(marks.end);
  calls_[call->second].groups.push_back(std::move(marks));
}

std::int64_t TracedSteps::host_ns(const Event& event) const {
  return clock_->host_ns(Event::seconds_between(clock_->origin(), event));
}

std::vector<TracedCall> TracedSteps::end(const std::vector<ExpertCallRecord>& records) {
  const std::lock_guard lock(mutex_);
  clock_->close();
  std::vector<TracedCall> traced;
  const std::size_t first = records.size() - std::min(records.size(), calls_.size());
  for (std::size_t i = 0; i < std::min(records.size(), calls_.size()); ++i) {
    const std::vector<Marks>& marks = calls_[i].groups;
    TracedCall& call =
        traced.emplace_back(TracedCall{.record = records[first + i], .whole = calls_[i].whole});
    // Groups that are empty come behind the first one, which has what was there.
    const bool had_hits = call.record.hits > 0;
    const std::size_t others = call.record.groups - (had_hits ? 1 : 0);
    for (std::size_t group = 0; group < marks.size(); ++group) {
      const bool had_experts = group == 0 && had_hits;
      if (!had_experts && group + others < marks.size()) continue;
      const Marks& mine = marks[group];
      call.groups.push_back({.arrived_ns = host_ns(mine.arrived.value_or(mine.begin)),
                             .products = {host_ns(mine.begin), host_ns(mine.end)}});
    }
  }
  clock_.reset();
  return traced;
}

void add_calls(Timeline& timeline, const std::vector<TracedCall>& calls, Engine loads) {
  if (calls.empty()) return;
  const std::int64_t origin = calls.front().record.enqueued_ns;
  std::int64_t before = origin;  // the end of the products of the layer before
  std::uint64_t item = 0;
  const auto add = [&](Engine engine, std::string_view stage, std::int64_t begin,
                       std::int64_t end) {
    if (end <= begin) return;
    timeline.record({.engine = engine,
                     .stage = stage,
                     .item = item,
                     .begin_ns = begin - origin,
                     .end_ns = end - origin});
  };
  for (const auto& [record, whole, groups] : calls) {
    const std::int64_t asked = std::max(record.enqueued_ns, before);
    const bool loads_at_once = whole && loads != Engine::disk;
    const std::int64_t routed = loads_at_once ? asked : std::max(record.routed_ns, asked);
    add(Engine::host, "routing", asked, routed);
    const bool loaded = record.late + record.misses > 0 && !groups.empty();
    const std::int64_t there = loaded ? groups.back().arrived_ns : routed;
    add(loads, "load", routed, there);
    std::int64_t idle = std::max(routed, before);
    for (const TracedCall::Group& group : groups) {
      add(Engine::host, "wait", idle, std::min(group.products.begin_ns, there));
      add(Engine::compute, "products", group.products.begin_ns, group.products.end_ns);
      before = std::max(before, group.products.end_ns);
      idle = std::max(routed, before);
    }
    ++item;
  }
}

}  // namespace ps::detail
