// Host stages: items begin in order, are under way together, and end in any order.
#include <stdexcept>
#include <utility>

#include "host/backend.h"
#include "host/clock.h"
#include "host/executor.h"
#include "host/range.h"

namespace ps::detail {

void Executor::start_host_stages() {
  threads_.reserve(2 * graph_.stages.size() + 1);
  for (std::size_t s = 0; s < graph_.stages.size(); ++s) {
    if (!graph_.stages[s].on_host) continue;
    threads_.emplace_back([this, s] { host_loop(s); });
    threads_follow_ = true;
  }
}

// The next item to begin, once it is ready; nothing when there will be none.
std::optional<std::uint64_t> Executor::next_host_item(std::size_t stage,
                                                      std::unique_lock<std::mutex>& lock) {
  const std::uint64_t& next = counts_[stage].started;
  if (next < items_ && slot_in_use(stage, next)) ++exhausted_[stage];
  host_stages_.wait(lock, [&] {
    if (stop_) return true;
    if (next == items_) return failure_ends_ == FailureEnds::everything;
    return ready(stage, next) && !passes_over(stage, next);
  });
  if (stop_ || next == items_) return std::nullopt;
  return next;
}

// Begins items as they become ready, and ends when every item that was begun is over.
void Executor::host_loop(std::size_t stage) {
  const Stage& s = graph_.stages[stage];
  graph_.options.device.backend().enter_thread();
  const auto current = graph_.options.device.backend().make_current();
  try {
    if (after_) after_->synchronize();
  } catch (...) {
    fail(stage, 0, std::current_exception());
    return;
  }
  for (;;) {
    std::shared_ptr<Ending> ending;
    std::exception_ptr no_memory;
    try {
      ending = std::make_shared<Ending>(shared_from_this(), stage);
    } catch (...) {
      no_memory = std::current_exception();
    }
    std::optional<std::uint64_t> item;
    {
      std::unique_lock lock(mutex_);
      item = next_host_item(stage, lock);
      if (!item) break;
      if (ending) {
        ++counts_[stage].started;
        ++async_[stage].under_way;
        ending->begin(*item);
      }
    }
    if (!ending) {
      fail(stage, *item, no_memory);
      continue;
    }
    try {
      const FailureScope scope(shared_from_this(), stage, *item);
      const NamedRange range(s.name);
      Item view(*this, stage, *item);
      s.async(view, Completion(ending));
    } catch (...) {
      ending->tell(std::current_exception());
    }
  }
  std::unique_lock lock(mutex_);
  host_stages_.wait(lock, [&] { return async_[stage].under_way == 0; });
}

void Executor::end(std::size_t stage, std::uint64_t item, std::int64_t begin_ns,
                   std::exception_ptr cause) noexcept {
  const Stage& s = graph_.stages[stage];
  if (cause) {
    fail(stage, item, std::move(cause));
  } else if (recorder_ != nullptr) {
    recorder_->record({s.engine, s.name, item, begin_ns - begin_ns_, now_ns() - begin_ns_});
  }
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t finished = end_host_item(stage, item);
    --async_[stage].under_way;
    // After a failure that ends everything nothing more is to start, and what failed is not
    // finished.
    if (!frozen_) count_finished(stage, finished);
    host_stages_.notify_all();
  }
  after_progress();
}

// Returns how many items the stage has finished now: those before the first that has not ended.
std::uint64_t Executor::end_host_item(std::size_t stage, std::uint64_t item) {
  std::vector<bool>& ended = async_[stage].ended;
  ended[item % graph_.window] = true;
  std::uint64_t finished = counts_[stage].finished;
  while (finished < counts_[stage].started && ended[finished % graph_.window]) {
    ended[finished % graph_.window] = false;
    ++finished;
  }
  return finished;
}

// Takes host stages past the items that they have nothing to do with, without waking their threads.
void Executor::pass_over_host_stages() {
  if (failure_ends_ == FailureEnds::everything || passing_over_ || stop_) return;
  passing_over_ = true;
  for (bool advanced = true; advanced;) {
    advanced = false;
    for (std::size_t s = 0; s < graph_.stages.size(); ++s) {
      if (!graph_.stages[s].on_host) continue;
      std::uint64_t& next = counts_[s].started;
      while (next < items_ && ready(s, next) && passes_over(s, next)) {
        ++next;
        count_finished(s, end_host_item(s, next - 1));
        advanced = true;
      }
    }
  }
  passing_over_ = false;
}

Ending::Ending(std::shared_ptr<Executor> executor, std::size_t stage)
    : executor_(std::move(executor)), stage_(stage) {}

Ending::~Ending() {
  if (told_) return;
  tell(
      std::make_exception_ptr(std::logic_error("the item was dropped: no copy of its Completion "
                                               "was called")));
}

void Ending::begin(std::uint64_t item) {
  item_ = item;
  begin_ns_ = now_ns();
  told_ = false;
}

void Ending::tell(std::exception_ptr cause) noexcept {
  if (!told_.exchange(true)) executor_->end(stage_, item_, begin_ns_, std::move(cause));
}

}  // namespace ps::detail
