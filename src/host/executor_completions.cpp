// How an executor learns what the device has completed, and tells its recorder.
#include <algorithm>

#include "host/backend.h"
#include "host/clock.h"
#include "host/executor.h"

namespace ps::detail {

bool Executor::followed(const Stage& stage) const {
  return !stage.on_host && (stage.tracked || times_device_);
}

void Executor::start_clock() {
  const auto any_device = std::find_if(graph_.stages.begin(), graph_.stages.end(),
                                       [](const Stage& s) { return !s.on_host; });
  if (times_device_ && any_device != graph_.stages.end()) clock_.emplace(*any_device->stream);
}

void Executor::start_completion_threads() {
  for (std::size_t s = 0; s < graph_.stages.size(); ++s) {
    if (has_thread(graph_.stages[s])) {
      threads_.emplace_back([this, s] { completion_loop(s); });
    } else if (!graph_.stages[s].on_host) {
      polls_ = true;
    }
  }
}

void Executor::end_submission() {
  const std::lock_guard lock(mutex_);
  submission_ended_ = true;
  completions_.notify_all();
}

// Follows a device stage's completions in order, until nothing enqueued is left.
void Executor::completion_loop(std::size_t stage) {
  const Stage& s = graph_.stages[stage];
  graph_.options.device.backend().enter_thread();
  for (std::uint64_t item = 0;; ++item) {
    {
      std::unique_lock lock(mutex_);
      completions_.wait(lock, [&] { return counts_[stage].started > item || submission_ended_; });
      if (counts_[stage].started <= item) return;
      if (counts_[stage].finished > item) continue;  // a later stage has finished it
    }
    try {
      s.done[item % graph_.window].synchronize();
      account(stage, item + 1);
    } catch (...) {
      if (failure_ends_ == FailureEnds::everything) {
        fail(stage, item, std::current_exception());
        return;
      }
      if (finished_by(stage) > item) continue;
      fail(stage, item, std::current_exception());
      wait_for_streams();
      count(stage, item + 1);
    }
  }
}

// A device stage has completed the items before `finished`.
void Executor::account(std::size_t stage, std::uint64_t finished) {
  if (times_device_) {
    for (std::uint64_t item = finished_by(stage); item < finished; ++item) harvest(stage, item);
  }
  count(stage, finished);
}

void Executor::count(std::size_t stage, std::uint64_t finished) {
  {
    const std::lock_guard lock(mutex_);
    count_finished(stage, finished);
  }
  after_progress();
}

void Executor::harvest(std::size_t stage, std::uint64_t item) {
  const Stage& s = graph_.stages[stage];
  const std::size_t place = item % graph_.window;
  // Placed too early, where at all; nothing of a run begins before it.
  const auto at = [&](const Event& event) {
    const double seconds = Event::seconds_between(clock_->origin(), event);
    return std::max<std::int64_t>(clock_->host_ns(seconds) - begin_ns_, 0);
  };
  recorder_->record({s.engine, s.name, item, at(s.begin[place]), at(s.end[place])});
}

}  // namespace ps::detail
