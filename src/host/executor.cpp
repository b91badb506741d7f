#include "host/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "host/backend.h"
#include "host/clock.h"
#include "host/range.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

// What is enqueued while this lives is an item of a stage: told to a recorder that asks.
class EnqueueScope {
 public:
  EnqueueScope(Recorder* recorder, std::string_view stage, std::uint64_t item)
      : recorder_(recorder != nullptr && recorder->watches_device() ? recorder : nullptr) {
    if (recorder_ != nullptr) recorder_->begin_enqueue(stage, item);
  }
  ~EnqueueScope() {
    if (recorder_ != nullptr) recorder_->end_enqueue();
  }
  EnqueueScope(const EnqueueScope&) = delete;
  EnqueueScope& operator=(const EnqueueScope&) = delete;

 private:
  Recorder* recorder_;
};

}  // namespace

Executor::Executor(StageGraph& graph, Recorder* recorder, FailureEnds failure_ends)
    : graph_(graph),
      recorder_(recorder),
      times_device_(graph.times_device(recorder)),
      counts_(graph.stages.size()),
      ahead_(graph.window),
      exhausted_(graph.stages.size(), 0),
      failure_ends_(failure_ends),
      kept_(graph.stages.size()),
      async_(graph.stages.size()) {
  for (auto& per_item : kept_) per_item.resize(graph.window);
  for (std::size_t s = 0; s < async_.size(); ++s) {
    if (graph.stages[s].async) async_[s].ended.resize(graph.window);
  }
}

// ---- counters; the mutex is held -----------------------------------------------------------

bool Executor::ready(std::size_t stage, std::uint64_t item) const {
  const Stage& s = graph_.stages[stage];
  for (const Dependency& d : s.dependencies) {
    if (d.lag > item) continue;
    const Count& count = counts_[d.stage];
    // Between device stages the device itself waits; the host only needs the event to be recorded.
    const bool on_device = !s.on_host && !graph_.stages[d.stage].on_host;
    if ((on_device ? count.started : count.finished) <= item - d.lag) return false;
  }
  // A stage runs no further ahead than may be left to finish when the run is cancelled.
  if (!s.on_host && item >= counts_[stage].finished + ahead_) return false;
  return item < open_;
}

bool Executor::slot_in_use(std::size_t stage, std::uint64_t item) const {
  const auto& dependencies = graph_.stages[stage].dependencies;
  return std::any_of(dependencies.begin(), dependencies.end(), [&](const Dependency& d) {
    return d.lag > 0 && d.lag <= item && counts_[d.stage].finished <= item - d.lag;
  });
}

void Executor::count_finished(std::size_t stage, std::uint64_t finished) {
  counts_[stage].finished = std::max(counts_[stage].finished, finished);
  // What came before is done as well. Not so in a recorded run, where done means that the times
  // were read: every stage counts for itself, or its events would be recorded anew too early.
  if (!times_device_) {
    for (const std::size_t ancestor : graph_.stages[stage].ancestors) {
      counts_[ancestor].finished = std::max(counts_[ancestor].finished, finished);
    }
  }
  std::uint64_t done = items_;
  for (const Count& count : counts_) done = std::min(done, count.finished);
  const bool on_host = graph_.stages[stage].on_host;
  const bool was_limited = limited();
  if (!on_host) changed_ns_ = now_ns();
  if (done > done_) set_done(done);
  open_window();
  if (on_host || was_limited || limited()) wake_enqueuer();
  host_stages_.notify_all();
  pass_over_host_stages();
}

void Executor::wake_enqueuer() {
  woken_ = true;
  enqueuer_.notify_one();
}

// Bounds what is in flight: events and scratch are kept per item of the window. It opens by half at
// a time, so that the enqueuing thread wakes for several items at once.
void Executor::open_window() {
  if (done_ + graph_.window < open_ + graph_.window / 2) return;
  open_ = done_ + graph_.window;
  wake_enqueuer();
  host_stages_.notify_all();
}

void Executor::stop() {
  stop_ = true;
  wake_enqueuer();
  host_stages_.notify_all();
}

std::uint64_t Executor::finished_by(std::size_t stage) {
  const std::lock_guard lock(mutex_);
  return counts_[stage].finished;
}

void Executor::fail(std::size_t stage, std::uint64_t item, std::exception_ptr cause) noexcept {
  {
    const std::lock_guard lock(mutex_);
    failed(stage, item, std::move(cause));
  }
  after_progress();
}

// ---- what an item may ask for --------------------------------------------------------------

MemoryView Executor::slot(std::size_t stage, std::uint64_t item, RingId ring) const {
  const Stage& s = graph_.stages[stage];
  if (std::find(s.rings.begin(), s.rings.end(), ring.value) == s.rings.end()) {
    throw_invalid("ring", fmt::format("a ring in the `uses` of stage '{}'", s.name),
                  ring.value < graph_.rings.size()
                      ? fmt::format("'{}'", graph_.rings[ring.value].name)
                      : fmt::format("ring number {}", ring.value));
  }
  return graph_.rings[ring.value].slot(item);
}

const Stream& Executor::stream(std::size_t stage) const {
  const Stage& s = graph_.stages[stage];
  if (!s.stream) {
    throw_invalid("stage", "a device stage", fmt::format("'{}', which runs on the host", s.name));
  }
  return *s.stream;
}

const Payload& Executor::payload(std::uint64_t /*item*/) const {
  throw_invalid("payload", "an item of a Session", "an item of a Pipeline, which has none");
}

MemoryView Executor::scratch(std::size_t stage, std::uint64_t item, std::size_t bytes,
                             StageId until) {
  const Stream& on = stream(stage);
  if (until.value != stage &&
      (until.value >= graph_.stages.size() || !graph_.precedes(stage, until.value) ||
       graph_.stages[until.value].on_host)) {
    throw_invalid("until", fmt::format("a device stage after '{}'", graph_.stages[stage].name),
                  until.value < graph_.stages.size()
                      ? fmt::format("'{}'", graph_.stages[until.value].name)
                      : fmt::format("stage number {}", until.value));
  }
  auto& keep = kept_[until.value][item % graph_.window];
  keep.reserve(keep.size() + 1);  // nothing may fail once the memory is there
  const MemoryView memory = graph_.pool().allocate(bytes, on);
  keep.push_back(memory);
  return memory;
}

// ---- device stages -------------------------------------------------------------------------

// One item of every device stage that is ready; an item's stages follow each other closely.
bool Executor::submit_round(std::unique_lock<std::mutex>& lock) {
  bool advanced = false;
  for (std::size_t s = 0; s < graph_.stages.size() && !stop_; ++s) {
    const std::uint64_t item = counts_[s].started;
    if (graph_.stages[s].on_host || item == items_ || !ready(s, item)) continue;
    if (slot_in_use(s, item)) ++exhausted_[s];
    const bool call = !passes_over(s, item);
    lock.unlock();
    try {
      enqueue(s, item, call);
    } catch (...) {
      fail(s, item, std::current_exception());
      // Some of its waits and events are missing, so nothing later may rely on them.
      if (failure_ends_ == FailureEnds::item) wait_for_streams();
    }
    lock.lock();
    ++counts_[s].started;
    enqueued(s, item);
    changed_ns_ = now_ns();
    completions_.notify_all();
    advanced = true;
  }
  return advanced;
}

void Executor::enqueue(std::size_t stage, std::uint64_t item, bool call) {
  const Stage& s = graph_.stages[stage];
  const Stream& on = *s.stream;
  const std::size_t place = item % graph_.window;
  for (const Dependency& d : s.dependencies) {
    const Stage& other = graph_.stages[d.stage];
    if (d.lag > item || other.on_host || other.stream == s.stream) continue;
    on.wait(other.done[(item - d.lag) % graph_.window]);
  }
  if (times_device_) on.record(s.begin[place]);
  const auto finish = [&] {
    for (const MemoryView memory : kept_[stage][place]) graph_.pool().free(memory, on);
    kept_[stage][place].clear();
    if (times_device_) on.record(s.end[place]);
    on.record(s.done[place]);
  };
  if (call) {
    try {
      const FailureScope scope(shared_from_this(), stage, item);
      const NamedRange range(s.name);
      const EnqueueScope enqueuing(recorder_, s.name, item);
      Item view(*this, stage, item);
      s.function(view);
    } catch (...) {
      fail(stage, item, std::current_exception());
    }
  }
  finish();
}

// After a failed call: when this returns, the work enqueued so far is over. It waits for the
// stages' own streams and not for the device, whose other streams may be waiting for an item.
void Executor::wait_for_streams() noexcept {
  for (const Stage& stage : graph_.stages) {
    if (stage.on_host) continue;
    try {
      stage.stream->synchronize();
    } catch (...) {
      stage.stream->impl().drain();  // the first failure is the one to report
    }
  }
}

void Executor::free_scratch() noexcept {
  for (std::size_t i = 0; i < graph_.stages.size(); ++i) {
    for (auto& memories : kept_[i]) {
      for (const MemoryView memory : memories) graph_.pool().free(memory, *graph_.stages[i].stream);
      memories.clear();
    }
  }
}

}  // namespace ps::detail
