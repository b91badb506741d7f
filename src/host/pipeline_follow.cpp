// How a run learns what the device has completed, and how far it runs ahead of that.
#include <algorithm>
#include <chrono>

#include "host/backend.h"
#include "host/clock.h"
#include "host/pipeline_run.h"

namespace ps::detail {
namespace {

constexpr std::int64_t progress_ns = 100'000'000;
// Time that the unfinished work of a device stage may take: a cancelled run has to wait for it.
constexpr std::int64_t ahead_ns = 100'000'000;
constexpr std::uint64_t least_ahead = 2;
constexpr std::int64_t shortest_pause_ns = 10'000, longest_pause_ns = 5'000'000;
constexpr std::int64_t longest_least_pause_ns = 1'000'000;

}  // namespace

// ---- how far ahead; the mutex is held ------------------------------------------------------

// Called when `items_done` more items are done. Updates the time per item, in which the last few
// items count most, and from it the number of items that a stage may have enqueued.
void PipelineRun::set_pace(std::uint64_t items_done) {
  constexpr std::int64_t memory = 4;
  const std::int64_t now = now_ns();
  const auto items = static_cast<std::int64_t>(items_done);
  const std::int64_t item_ns = (now - done_ns_) / items;
  item_ns_ =
      done_ == 0 ? item_ns : item_ns_ + (item_ns - item_ns_) * std::min(items, memory) / memory;
  done_ns_ = now;
  const std::int64_t fit = ahead_ns / std::max<std::int64_t>(item_ns_, 1);
  ahead_ = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(fit), least_ahead, graph_.window);
}

bool PipelineRun::progress_due() const {
  return options_.progress && now_ns() - last_progress_ns_ >= progress_ns;
}

// Half of the time since the last change. A completion is then noticed late by at most half of what
// it took, and meanwhile the next item, which is already enqueued, runs. Every look takes CPU time,
// so the pause is not shorter than a small part of the time that the enqueued items take.
std::int64_t PipelineRun::pause_until_next_look() const {
  const std::int64_t enqueued_ns = item_ns_ * static_cast<std::int64_t>(ahead_ - 1);
  const std::int64_t least =
      std::clamp(enqueued_ns / 16, shortest_pause_ns, longest_least_pause_ns);
  return std::clamp((now_ns() - changed_ns_) / 2, least, longest_pause_ns);
}

// ---- completions ---------------------------------------------------------------------------

// The calling thread, if other threads follow completions: sleeps until there may be something to
// enqueue. While the stages are limited, it also polls those that no thread follows.
void PipelineRun::wait_for_change(std::unique_lock<std::mutex>& lock) {
  if (polls_ && limited() && look(lock)) return;
  const auto woken = [this] { return woken_; };
  const bool polling = polls_ && limited();
  std::int64_t pause = polling ? pause_until_next_look() : progress_ns;
  if (options_.progress) pause = std::min(pause, last_progress_ns_ + progress_ns - now_ns());
  if (polling || options_.progress) {
    enqueuer_.wait_for(lock, std::chrono::nanoseconds(pause), woken);
  } else {
    enqueuer_.wait(lock, woken);
  }
}

// The calling thread, if no other threads follow completions: waits until something has completed.
void PipelineRun::follow(std::unique_lock<std::mutex>& lock) {
  if (!limited() && !all_enqueued()) {
    follow_half_window(lock);
  } else if (!look(lock) && !stop_ && graph_.options.waiting == Waiting::poll) {
    const std::int64_t pause = pause_until_next_look();
    lock.unlock();
    pause_ns(pause);
    lock.lock();
  }
}

// Polls every device stage that no thread follows. Returns whether one has completed more items.
bool PipelineRun::look(std::unique_lock<std::mutex>& lock) {
  bool advanced = false;
  // The last stage first: what it has completed, the stages before it have completed too.
  for (std::size_t s = graph_.stages.size(); s-- > 0 && !stop_;) {
    const Stage& stage = graph_.stages[s];
    if (stage.on_host || has_thread(stage)) continue;
    const std::uint64_t before = counts_[s].finished, started = counts_[s].started;
    std::uint64_t item = before;
    lock.unlock();
    try {
      while (item < started && stage.done[item % graph_.window].done()) ++item;
      if (item > before) account(s, item);
    } catch (...) {
      fail(s, item, std::current_exception());
    }
    lock.lock();
    advanced = advanced || item > before;
  }
  return advanced;
}

// Waits until half of the window has completed, or progress is due.
void PipelineRun::follow_half_window(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t target = open_ - (graph_.window - graph_.window / 2);
  for (std::size_t s = 0; s < graph_.stages.size() && !stop_; ++s) {
    const Stage& stage = graph_.stages[s];
    if (!followed(stage) || counts_[s].finished >= target) continue;
    bool reached = false;
    lock.unlock();
    try {
      reached = reach(stage.done[(target - 1) % graph_.window], target);
      if (reached) account(s, target);
    } catch (...) {
      fail(s, target - 1, std::current_exception());
    }
    lock.lock();
    if (!reached) {
      look(lock);  // count what has completed so far
      return;
    }
  }
}

// Waits for the event of the last item before `target`; false when the run is to stop or to report
// progress. Every look takes CPU time, so it sleeps half as long as the items so far say that it
// takes. To sleep all of it would not do: what is noticed late makes the estimate longer, and the
// lateness of every window would add up until the device runs dry. At first the estimate is the
// time of one item through all stages, several times what the next ones take: no longer, then, than
// half of the time since the run began.
bool PipelineRun::reach(const Event& done, std::uint64_t target) {
  while (!done.done()) {
    std::int64_t pause = 0;
    {
      const std::lock_guard lock(mutex_);
      if (stop_ || progress_due()) return false;
      const std::int64_t now = now_ns();
      const auto left = item_ns_ * static_cast<std::int64_t>(target - done_) - (now - done_ns_);
      // To notice it an eighth of the half window late does no harm.
      const auto least = item_ns_ * static_cast<std::int64_t>(graph_.window / 16);
      pause = std::min(std::max(left / 2, least), (now - begin_ns_) / 2);
    }
    if (graph_.options.waiting == Waiting::poll) {
      pause_ns(std::clamp(pause, shortest_pause_ns, longest_pause_ns));
    }
  }
  return true;
}

}  // namespace ps::detail
