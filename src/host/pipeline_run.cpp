#include "host/pipeline_run.h"

#include <stop_token>
#include <utility>

#include "host/backend.h"
#include "host/clock.h"

namespace ps::detail {

PipelineRun::PipelineRun(StageGraph& graph, const RunOptions& options)
    : Executor(graph, options.recorder, FailureEnds::everything), options_(options) {
  items_ = options.items;
  // At first, and at least: one item runs while the next one waits.
  ahead_ = 2;
}

// ---- counters; the mutex is held -----------------------------------------------------------

bool PipelineRun::all_enqueued() const {
  for (std::size_t s = 0; s < counts_.size(); ++s) {
    if (!graph_.stages[s].on_host && counts_[s].started < items_) return false;
  }
  return true;
}

void PipelineRun::set_done(std::uint64_t done) {
  set_pace(done - done_);
  done_ = done;
  if (complete()) wake_enqueuer();
}

void PipelineRun::failed(std::size_t stage, std::uint64_t item, std::exception_ptr cause) noexcept {
  if (!failure_) failure_ = Failure{stage, item, std::move(cause)};
  frozen_ = true;
  stop();
}

bool PipelineRun::stopping(std::uint64_t /*item*/) {
  const std::lock_guard lock(mutex_);
  return stop_;
}

// ---- the run -------------------------------------------------------------------------------

RunReport PipelineRun::run() {
  const auto current = graph_.options.device.backend().make_current();
  const std::uint64_t allocations = graph_.options.device.backend().allocations();
  start_clock();
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
      // A thread that sleeps until the device interrupts hears of nothing else meanwhile.
      if (graph_.options.waiting == Waiting::block) threads_follow_ = true;
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
    failed = stop_;
  }
  end_submission();
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
  free_scratch();
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
