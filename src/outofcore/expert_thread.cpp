// The thread that answers calls of StreamedExperts.
#include <exception>
#include <thread>

#include "host/backend.h"
#include "host/clock.h"
#include "host/flag.h"
#include "outofcore/expert_feeder.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

// Between two layers of a pass there is less time than this; until then the thread does not sleep.
constexpr std::int64_t spin_ns = 5'000'000;
constexpr std::int64_t look_ns = 10'000'000;

}  // namespace

void ExpertFeeder::run() {
  device_.backend().enter_thread();
  busy_ns_ = now_ns();
  while (!must_end()) {
    try {
      take_posted();
      take_hints();
      if (!current_.empty()) {
        const ExpertCall& call = *current_.front();
        if (call.abandoned || call.whole || cancelled_ || flag_reached(call.routed, call.number)) {
          answer_current();
          continue;
        }
      }
      if (answers_->prefetch_one()) {
        busy_ns_ = now_ns();
        count(nullptr, false);
        continue;
      }
      give_back_done();
      pause();
    } catch (const DeviceLost&) {
      error_.set(std::current_exception());
      drop_work();
    } catch (...) {
      error_.set(std::current_exception());
      pause_ns(50'000);
    }
  }
  answers_->drain();
}

void ExpertFeeder::take_posted() {
  const std::lock_guard lock(mutex_);
  for (; !named_.empty(); named_.pop_front()) {
    answers_->wish(named_.front().first, named_.front().second);
  }
  if (!posted_hints_.empty()) {
    hints_.splice(hints_.end(), posted_hints_);
    busy_ns_ = now_ns();
  }
  if (cancelled_ || ending_) answers_->forget_wishes();
  if (clearing_ && current_.empty() && posted_.empty()) {
    answered_.splice(answered_.end(), hints_);
    answers_->clear();
    clearing_ = false;
    given_back_.notify_all();
  }
  if (!current_.empty() || posted_.empty()) return;
  current_.splice(current_.end(), posted_, posted_.begin());
  busy_ns_ = now_ns();
}

// Never waits for a hint: its stream may wait for a call that is posted later.
void ExpertFeeder::take_hints() {
  for (auto each = hints_.begin(); each != hints_.end();) {
    const auto hint = each++;
    const ExpertCall& call = **hint;
    const bool dropped = call.abandoned || cancelled_;
    if (!dropped && !flag_reached(call.routed, call.number)) continue;
    answered_.splice(answered_.end(), hints_, hint);
    if (!dropped) answers_->wish(call);
  }
}

void ExpertFeeder::answer_current() {
  ExpertCall& call = *current_.front();
  answered_.splice(answered_.end(), current_);
  busy_ns_ = now_ns();
  if (call.abandoned) return;
  ExpertCallRecord record;
  const std::exception_ptr failure = answers_->answer(call, record);
  call.answered = call.number;
  call.failed = failure != nullptr;
  if (failure) error_.set(failure);
  count(&record, failure != nullptr);
}

void ExpertFeeder::count(const ExpertCallRecord* record, bool failed) {
  const ExpertStatistics copies = answers_->statistics();
  const std::lock_guard lock(mutex_);
  statistics_.prefetched = copies.prefetched;
  statistics_.wasted = copies.wasted;
  statistics_.evicted = copies.evicted;
  statistics_.bytes = copies.bytes;
  if (record == nullptr) return;
  ++statistics_.calls;
  statistics_.needed += record->needed;
  statistics_.hits += record->hits;
  statistics_.late += record->late;
  statistics_.misses += record->misses;
  statistics_.on_host += record->on_host;
  statistics_.failed_calls += failed ? 1 : 0;
  last_misses_[static_cast<std::size_t>(record->layer)] = record->late + record->misses;
  if (most_records_ == 0) return;
  records_.push_back(*record);
  if (records_.size() > most_records_) records_.pop_front();
}

// The device is lost: nothing will ever arrive there.
void ExpertFeeder::drop_work() {
  answers_->give_up();
  answered_.splice(answered_.end(), hints_);
  if (current_.empty()) return;
  release(*current_.front());
  current_.front()->answered = current_.front()->number;
  answered_.splice(answered_.end(), current_);
}

bool ExpertFeeder::is_over(const ExpertCall& call) {
  // A lost device does not wait for the host.
  if (call.host != nullptr && !call.host->finished) return false;
  try {
    return call.abandoned || call.done.done();
  } catch (const DeviceLost&) {
    return true;  // the device does nothing any more
  }
}

void ExpertFeeder::give_back_done() {
  // There are few parts of the host, so they do not wait for earlier calls on other streams.
  for (ExpertCall* call : answered_) {
    if (call->host == nullptr || !is_over(*call)) continue;
    {
      const std::lock_guard lock(mutex_);
      if (call->host->failed && !call->failed) ++statistics_.failed_calls;
      free_part(*call);
    }
    given_back_.notify_all();
  }
  // A call that has ended since then still has its part.
  while (!answered_.empty() && answered_.front()->host == nullptr && is_over(*answered_.front())) {
    ++answered_.front()->number;
    {
      const std::lock_guard lock(mutex_);
      make_free(answered_);
    }
    given_back_.notify_all();
  }
}

// Sleeps while there is nothing to do.
bool ExpertFeeder::must_end() {
  if (answers_->has_work() || !current_.empty() || !hints_.empty() || !answered_.empty()) {
    return false;
  }
  std::unique_lock lock(mutex_);
  posted_or_ending_.wait(lock, [&] {
    return ending_ || clearing_ || !posted_.empty() || !posted_hints_.empty() || !named_.empty();
  });
  return ending_ && !clearing_ && posted_.empty() && posted_hints_.empty();
}

void ExpertFeeder::pause() {
  const std::int64_t now = now_ns();
  if (now - looked_ns_ > look_ns) {
    looked_ns_ = now;
    answers_->look_for_faults();
  }
  pause_since(busy_ns_);
}

void ExpertFeeder::pause_since(std::int64_t busy_ns) {
  if (now_ns() - busy_ns < spin_ns) {
    std::this_thread::yield();
  } else {
    pause_ns(50'000);
  }
}

}  // namespace ps::detail
