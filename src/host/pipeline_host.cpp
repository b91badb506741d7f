// Host stages of a run: items begin in order, are under way together, and end in any order.
#include <stdexcept>
#include <utility>

#include "host/backend.h"
#include "host/clock.h"
#include "host/pipeline_run.h"
#include "host/range.h"

namespace ps::detail {

// Begins items as they become ready, and ends when every item that was begun is over.
void PipelineRun::host_loop(std::size_t stage) {
  const Stage& s = graph_.stages[stage];
  graph_.options.device.backend().enter_thread();
  const auto current = graph_.options.device.backend().make_current();
  std::uint64_t item = 0;
  try {
    if (after_) after_->synchronize();
    for (; item < options_.items; ++item) {
      const auto ending = std::make_shared<Ending>(shared_from_this(), stage, item);
      {
        std::unique_lock lock(mutex_);
        if (slot_in_use(stage, item)) ++exhausted_[stage];
        host_stages_.wait(lock, [&] { return stop_ || ready(stage, item); });
        if (stop_) {
          ending->call_off();
          break;
        }
        ++counts_[stage].started;
        ++async_[stage].under_way;
        ending->begin();
      }
      try {
        const FailureScope scope(shared_from_this(), stage, item);
        const NamedRange range(s.name);
        Item view(*this, stage, item);
        s.async(view, Completion(ending));
      } catch (...) {
        ending->tell(std::current_exception());
      }
    }
  } catch (...) {
    fail(stage, item, std::current_exception());
  }
  std::unique_lock lock(mutex_);
  host_stages_.wait(lock, [&] { return async_[stage].under_way == 0; });
}

void PipelineRun::end(std::size_t stage, std::uint64_t item, std::int64_t begin_ns,
                      std::exception_ptr cause) noexcept {
  const Stage& s = graph_.stages[stage];
  if (cause) {
    fail(stage, item, std::move(cause));
  } else if (options_.recorder != nullptr) {
    options_.recorder->record({s.engine, s.name, item, begin_ns - begin_ns_, now_ns() - begin_ns_});
  }
  const std::lock_guard lock(mutex_);
  Async& async = async_[stage];
  async.ended[item % graph_.window] = true;
  std::uint64_t finished = counts_[stage].finished;
  while (finished < counts_[stage].started && async.ended[finished % graph_.window]) {
    async.ended[finished % graph_.window] = false;
    ++finished;
  }
  --async.under_way;
  // After a failure nothing more is to start, and what failed is not finished.
  if (!failure_) count_finished(stage, finished);
  host_stages_.notify_all();
}

Ending::Ending(std::shared_ptr<PipelineRun> run, std::size_t stage, std::uint64_t item)
    : run_(std::move(run)), stage_(stage), item_(item) {}

Ending::~Ending() {
  if (told_) return;
  tell(
      std::make_exception_ptr(std::logic_error("the item was dropped: no copy of its Completion "
                                               "was called")));
}

void Ending::begin() { begin_ns_ = now_ns(); }
void Ending::call_off() { told_ = true; }

void Ending::tell(std::exception_ptr cause) noexcept {
  if (!told_.exchange(true)) run_->end(stage_, item_, begin_ns_, std::move(cause));
}

}  // namespace ps::detail
