#include "host/pipeline_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stop_token>
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

PipelineRun::PipelineRun(PipelineImpl& graph, const RunOptions& options)
    : graph_(graph),
      options_(options),
      times_device_(graph.times_device(options.recorder)),
      kept_(graph.stages.size()),
      counts_(graph.stages.size()),
      async_(graph.stages.size()),
      exhausted_(graph.stages.size(), 0) {
  for (auto& per_item : kept_) per_item.resize(graph.window);
  for (std::size_t s = 0; s < async_.size(); ++s) {
    if (graph.stages[s].async) async_[s].ended.resize(graph.window);
  }
}

// ---- counters; the mutex is held -----------------------------------------------------------

bool PipelineRun::ready(std::size_t stage, std::uint64_t item) const {
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

bool PipelineRun::slot_in_use(std::size_t stage, std::uint64_t item) const {
  const auto& dependencies = graph_.stages[stage].dependencies;
  return std::any_of(dependencies.begin(), dependencies.end(), [&](const Dependency& d) {
    return d.lag > 0 && d.lag <= item && counts_[d.stage].finished <= item - d.lag;
  });
}

void PipelineRun::count_finished(std::size_t stage, std::uint64_t finished) {
  counts_[stage].finished = std::max(counts_[stage].finished, finished);
  // What came before is done as well. Not so in a recorded run, where done means that the times
  // were read: every stage counts for itself, or its events would be recorded anew too early.
  if (!times_device_) {
    for (const std::size_t ancestor : graph_.stages[stage].ancestors) {
      counts_[ancestor].finished = std::max(counts_[ancestor].finished, finished);
    }
  }
  std::uint64_t done = options_.items;
  for (const Count& count : counts_) done = std::min(done, count.finished);
  const bool on_host = graph_.stages[stage].on_host;
  const bool was_limited = limited();
  if (!on_host) changed_ns_ = now_ns();
  if (done > done_) set_pace(done - done_);
  done_ = done;
  open_window();
  if (on_host || was_limited || limited() || complete()) wake_enqueuer();
  host_stages_.notify_all();
}

void PipelineRun::wake_enqueuer() {
  woken_ = true;
  enqueuer_.notify_one();
}

// Bounds what is in flight: events and scratch are kept per item of the window. It opens by half at
// a time, so that the enqueuing thread wakes for several items at once.
void PipelineRun::open_window() {
  if (done_ + graph_.window < open_ + graph_.window / 2) return;
  open_ = done_ + graph_.window;
  wake_enqueuer();
  host_stages_.notify_all();
}

bool PipelineRun::all_enqueued() const {
  for (std::size_t s = 0; s < counts_.size(); ++s) {
    if (!graph_.stages[s].on_host && counts_[s].started < options_.items) return false;
  }
  return true;
}

void PipelineRun::stop() {
  stop_ = true;
  wake_enqueuer();
  host_stages_.notify_all();
}

std::uint64_t PipelineRun::finished_by(std::size_t stage) {
  const std::lock_guard lock(mutex_);
  return counts_[stage].finished;
}

bool PipelineRun::stopping() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void PipelineRun::fail(std::size_t stage, std::uint64_t item, std::exception_ptr cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = Failure{stage, item, std::move(cause)};
  stop();
}

// ---- what an item may ask for --------------------------------------------------------------

MemoryView PipelineRun::slot(std::size_t stage, std::uint64_t item, RingId ring) const {
  const Stage& s = graph_.stages[stage];
  if (std::find(s.rings.begin(), s.rings.end(), ring.value) == s.rings.end()) {
    throw_invalid("ring", fmt::format("a ring in the `uses` of stage '{}'", s.name),
                  ring.value < graph_.rings.size()
                      ? fmt::format("'{}'", graph_.rings[ring.value].name)
                      : fmt::format("ring number {}", ring.value));
  }
  return graph_.rings[ring.value].slot(item);
}

const Stream& PipelineRun::stream(std::size_t stage) const {
  const Stage& s = graph_.stages[stage];
  if (!s.stream) {
    throw_invalid("stage", "a device stage", fmt::format("'{}', which runs on the host", s.name));
  }
  return *s.stream;
}

MemoryView PipelineRun::scratch(std::size_t stage, std::uint64_t item, std::size_t bytes,
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

// ---- the run -------------------------------------------------------------------------------

RunReport PipelineRun::run() {
  const auto current = graph_.options.device.backend().make_current();
  const std::uint64_t allocations = graph_.options.device.backend().allocations();
  const auto any_device = std::find_if(graph_.stages.begin(), graph_.stages.end(),
                                       [](const Stage& s) { return !s.on_host; });
  if (times_device_ && any_device != graph_.stages.end()) {
    clock_.emplace(*any_device->stream);
  }
  if (options_.after) {
    after_ = graph_.fork;
    options_.after->record(*after_);
    for (const Stage& stage : graph_.stages) {
      if (!stage.on_host) stage.stream->wait(*after_);
    }
  }
  begin_ns_ = done_ns_ = changed_ns_ = now_ns();
  if (options_.recorder != nullptr) options_.recorder->begin_run(begin_ns_);
  const std::int64_t cpu_begin = thread_cpu_ns();
  {
    // Declared before the threads start, so that however this scope ends the threads do too.
    const std::stop_callback on_cancel(options_.stop, [this] {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      stop();
    });
    try {
      start_host_stages();
      start_completion_threads();
      submit_all();
      submit_cpu_ns_ = thread_cpu_ns() - cpu_begin;
    } catch (...) {
      // Threads could not be started, or the progress function threw.
      {
        const std::lock_guard lock(mutex_);
        stop();
      }
      settle();
      throw;
    }
    settle();
  }
  const std::lock_guard lock(mutex_);
  if (failure_) {
    throw PipelineError(graph_.stages[failure_->stage].name, failure_->item, failure_->cause);
  }
  return report(allocations);
}

void PipelineRun::start_host_stages() {
  threads_.reserve(graph_.stages.size());
  for (std::size_t s = 0; s < graph_.stages.size(); ++s) {
    if (!graph_.stages[s].on_host) continue;
    threads_.emplace_back([this, s] { host_loop(s); });
    any_host_stage_ = true;
  }
}

void PipelineRun::start_completion_threads() {
  // A thread that sleeps until the device interrupts hears of nothing else meanwhile.
  threads_follow_ = any_host_stage_ || graph_.options.waiting == Waiting::block;
  for (std::size_t s = 0; s < graph_.stages.size(); ++s) {
    if (has_thread(graph_.stages[s])) {
      threads_.emplace_back([this, s] { completion_loop(s); });
    } else if (!graph_.stages[s].on_host) {
      polls_ = true;
    }
  }
}

void PipelineRun::submit_all() {
  std::unique_lock lock(mutex_);
  open_window();
  while (!stop_ && !complete()) {
    if (progress_due()) report_progress(lock);
    woken_ = false;  // what changes from here on is not slept through
    if (submit_round(lock) || stop_) continue;
    if (threads_follow_) {
      wait_for_change(lock);
    } else if (all_enqueued() && !options_.progress) {
      break;  // settle() waits for the device
    } else {
      follow(lock);
    }
  }
  if (options_.progress && !stop_) report_progress(lock);
}

// One item of every device stage that is ready; an item's stages follow each other closely.
bool PipelineRun::submit_round(std::unique_lock<std::mutex>& lock) {
  bool advanced = false;
  for (std::size_t s = 0; s < graph_.stages.size() && !stop_; ++s) {
    const std::uint64_t item = counts_[s].started;
    if (graph_.stages[s].on_host || item == options_.items || !ready(s, item)) continue;
    if (slot_in_use(s, item)) ++exhausted_[s];
    lock.unlock();
    try {
      enqueue(s, item);
    } catch (...) {
      fail(s, item, std::current_exception());
    }
    lock.lock();
    ++counts_[s].started;
    changed_ns_ = now_ns();
    completions_.notify_all();
    advanced = true;
  }
  return advanced;
}

void PipelineRun::enqueue(std::size_t stage, std::uint64_t item) {
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
  try {
    const FailureScope scope(shared_from_this(), stage, item);
    const NamedRange range(s.name);
    const EnqueueScope enqueuing(options_.recorder, s.name, item);
    Item view(*this, stage, item);
    s.function(view);
  } catch (...) {
    fail(stage, item, std::current_exception());
  }
  finish();
}

void PipelineRun::report_progress(std::unique_lock<std::mutex>& lock) {
  last_progress_ns_ = now_ns();
  const Progress progress{done_, options_.items};
  lock.unlock();
  options_.progress(progress);
  lock.lock();
}

// Lets the device finish what was enqueued, ends the threads, and gives back all scratch.
void PipelineRun::settle() noexcept {
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    submitted_all_ = true;
    failed = stop_;
    completions_.notify_all();
  }
  for (std::size_t i = 0; i < graph_.stages.size(); ++i) {
    const Stage& stage = graph_.stages[i];
    if (stage.on_host) continue;
    try {
      if (failed || stage.stream->owned()) {
        stage.stream->synchronize();
      } else if (options_.items > 0) {
        // A caller's stream may hold other work behind ours.
        stage.done[(options_.items - 1) % graph_.window].synchronize();
        stage.stream->impl().rethrow();
      }
    } catch (...) {
      fail(i, finished_by(i), std::current_exception());
      try {
        graph_.options.device.synchronize();  // nothing may still run when the slots are used again
      } catch (...) {
        // The first failure is the one to report.
      }
    }
  }
  threads_.clear();
  for (std::size_t i = 0; i < graph_.stages.size(); ++i) {
    if (failure_ || graph_.stages[i].on_host || has_thread(graph_.stages[i])) continue;
    try {
      account(i, counts_[i].started);
    } catch (...) {
      fail(i, counts_[i].finished, std::current_exception());
    }
  }
  for (std::size_t i = 0; i < graph_.stages.size(); ++i) {
    for (auto& memories : kept_[i]) {
      for (const MemoryView memory : memories) graph_.pool().free(memory, *graph_.stages[i].stream);
      memories.clear();
    }
  }
}

RunReport PipelineRun::report(std::uint64_t allocations) const {
  RunReport result;
  result.items = done_;
  result.cancelled = cancelled_ && result.items < options_.items;
  result.seconds = static_cast<double>(now_ns() - begin_ns_) * 1e-9;
  result.submit_cpu_seconds = static_cast<double>(submit_cpu_ns_) * 1e-9;
  result.allocations = graph_.options.device.backend().allocations() - allocations;
  for (std::size_t s = 0; s < graph_.stages.size(); ++s) {
    result.stages.push_back({graph_.stages[s].name, counts_[s].finished});
  }
  for (const Ring& ring : graph_.rings) {
    result.rings.push_back({ring.name, ring.depth, exhausted_[ring.users.front()]});
  }
  return result;
}

}  // namespace ps::detail
