#include "host/session_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "host/clock.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

constexpr std::uint64_t no_window = std::uint64_t{1} << 62;

bool has(std::uint64_t stages, std::size_t stage) { return (stages >> stage & 1) != 0; }

}  // namespace

SessionCore::SessionCore(StageGraph& graph, Recorder* recorder, WhenExhausted when_full)
    : Executor(graph, recorder, FailureEnds::item),
      when_full_(when_full),
      signals_(graph.stages.size()),
      tickets_(graph.window) {
  open_ = no_window;  // push() bounds what is in flight
  for (std::size_t s = 0; s < graph.stages.size(); ++s) {
    if (graph.is_last(s)) last_stages_.push_back(s);
  }
}

void SessionCore::start() {
  for (const std::size_t s : last_stages_) {
    signals_[s] = graph_.options.device.backend().make_signal(0);
  }
  start_clock();
  begin_ns_ = changed_ns_ = now_ns();
  if (recorder_ != nullptr) recorder_->begin_run(begin_ns_);
  threads_follow_ = true;
  start_host_stages();
  start_completion_threads();
  threads_.emplace_back([this] { enqueue_loop(); });
}

// ---- items; the mutex is held --------------------------------------------------------------

TicketState* SessionCore::in_flight(std::uint64_t item) const {
  if (item < retired_ || item >= items_) return nullptr;
  return tickets_[item % graph_.window].get();
}

bool SessionCore::passes_over(std::size_t stage, std::uint64_t item) {
  const TicketState& ticket = *tickets_[item % graph_.window];
  return has(ticket.passed_over, stage) || ticket.cancelled || ticket.cause;
}

void SessionCore::failed(std::size_t stage, std::uint64_t item, std::exception_ptr cause) noexcept {
  TicketState* ticket = in_flight(item);
  if (ticket == nullptr) {
    if (!late_) late_ = LateFailure{stage, item, std::move(cause)};
    return;
  }
  if (ticket->cause) return;
  ticket->cause = std::move(cause);
  ticket->failed_stage = stage;
  pass_over_host_stages();
}

bool SessionCore::all_started(std::uint64_t item, std::uint64_t except) const {
  for (std::size_t s = 0; s < counts_.size(); ++s) {
    if (!has(except, s) && counts_[s].started <= item) return false;
  }
  return true;
}

bool SessionCore::cancel_locked(TicketState& ticket) {
  if (ticket.cancelled) return true;
  if (ticket.cause || all_started(ticket.index, ticket.passed_over)) return false;
  ticket.cancelled = true;
  return true;
}

void SessionCore::wait_for_room(std::unique_lock<std::mutex>& lock) {
  const auto room = [&] { return items_ - retired_ < graph_.window; };
  if (!room()) {
    if (inside(*this)) {
      throw Exhausted(fmt::format(
          "{} items are in flight, and push() inside a stage function cannot wait for them",
          graph_.window));
    }
    if (when_full_ == WhenExhausted::fail) {
      throw Exhausted(
          fmt::format("{} items are in flight (SessionOptions::in_flight)", graph_.window));
    }
    room_.wait(lock, [&] { return room() || stop_; });
  }
  if (stop_) throw Cancelled("the session is being destroyed");
}

// ---- items ---------------------------------------------------------------------------------

std::shared_ptr<TicketState> SessionCore::push(Payload payload, std::uint64_t passed_over) {
  auto ticket = std::make_shared<TicketState>(
      std::static_pointer_cast<SessionCore>(shared_from_this()), std::move(payload), passed_over);
  const auto current = graph_.options.device.backend().make_current();
  {
    std::unique_lock lock(mutex_);
    wait_for_room(lock);
    ticket->index = items_;
    tickets_[items_ % graph_.window] = ticket;
    ++items_;
    pass_over_host_stages();
    host_stages_.notify_all();
    if (enqueuing_) {
      woken_ = true;
    } else {
      enqueue_ready(lock, ticket->index + 1);
    }
  }
  after_progress();
  return ticket;
}

std::uint64_t SessionCore::enqueued_by_all() const {
  std::uint64_t least = items_;
  for (std::size_t s = 0; s < counts_.size(); ++s) {
    if (!graph_.stages[s].on_host) least = std::min(least, counts_[s].started);
  }
  return least;
}

// Enqueues device stages until nothing is ready, or until all have enqueued the items before
// `until`; what is left then is up to the thread of enqueue_loop().
void SessionCore::enqueue_ready(std::unique_lock<std::mutex>& lock, std::uint64_t until) {
  enqueuing_ = true;
  woken_ = false;
  bool advanced = true;
  while (!stop_ && advanced && enqueued_by_all() < until) advanced = submit_round(lock);
  enqueuing_ = false;
  if (advanced && enqueued_by_all() < items_) woken_ = true;
  if (woken_) enqueuer_.notify_one();
  idle_.notify_all();
}

void SessionCore::enqueue_loop() {
  graph_.options.device.backend().enter_thread();
  const auto current = graph_.options.device.backend().make_current();
  std::unique_lock lock(mutex_);
  for (;;) {
    enqueuer_.wait(lock, [&] { return stop_ || (woken_ && !enqueuing_); });
    if (stop_) return;
    enqueue_ready(lock, no_window);
  }
}

const Payload& SessionCore::payload(std::uint64_t item) const {
  return tickets_[item % graph_.window]->payload;
}

bool SessionCore::stopping(std::uint64_t item) {
  const std::lock_guard lock(mutex_);
  const TicketState* ticket = in_flight(item);
  return stop_ || ticket == nullptr || ticket->cancelled || ticket->cause;
}

bool SessionCore::cancel(TicketState& ticket) {
  bool cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    if (in_flight(ticket.index) != &ticket) return false;
    cancelled = cancel_locked(ticket);
    pass_over_host_stages();
  }
  after_progress();
  return cancelled;
}

void SessionCore::cancel_all() {
  {
    const std::lock_guard lock(mutex_);
    for (std::uint64_t item = retired_; item < items_; ++item) {
      if (TicketState* ticket = in_flight(item)) cancel_locked(*ticket);
    }
    pass_over_host_stages();
  }
  after_progress();
}

// ---- ends ----------------------------------------------------------------------------------

void SessionCore::after_progress() noexcept {
  std::unique_lock lock(mutex_);
  if (!retiring_ && !closed_) retire(lock);
}

// Ends the tickets of the items that are done, in order: by one thread at a time, which drops
// payloads without the mutex, since their destructors may call anything.
void SessionCore::retire(std::unique_lock<std::mutex>& lock) noexcept {
  constexpr std::uint64_t raise_at_least_every = 1 << 24;  // so that the numbers can wrap around
  if (retired_ == done_) return;
  retiring_ = true;
  while (retired_ < done_) {
    std::shared_ptr<TicketState> ticket = std::move(tickets_[retired_ % graph_.window]);
    ticket->ended = true;
    const std::uint64_t number = ticket->index + 1;
    for (const std::size_t s : last_stages_) {
      if (!signals_[s]) continue;
      if (has(ticket->joined, s) || number % raise_at_least_every == 0) {
        signals_[s]->raise(static_cast<std::uint32_t>(number));
      }
    }
    lock.unlock();
    finish(*ticket);
    ticket.reset();
    lock.lock();
    ++retired_;
    room_.notify_all();
  }
  retiring_ = false;
  room_.notify_all();
}

void SessionCore::finish(TicketState& ticket) noexcept {
  if (!ticket.payload.empty()) {
    const FailureScope scope(shared_from_this(), 0, ticket.index);
    ticket.payload = {};
  }
  if (ticket.cause) {
    try {
      ticket.error = std::make_exception_ptr(
          PipelineError(graph_.stages[ticket.failed_stage].name, ticket.index, ticket.cause));
    } catch (...) {
      ticket.error = ticket.cause;  // no memory for its place
    }
  } else if (ticket.cancelled) {
    ticket.error =
        std::make_exception_ptr(Cancelled(fmt::format("item {} was cancelled", ticket.index)));
  }
  ticket.cause = nullptr;
  ticket.finish();
}

void SessionCore::drain() {
  refuse_inside("drain()");
  std::optional<LateFailure> late;
  {
    std::unique_lock lock(mutex_);
    const std::uint64_t target = items_;
    room_.wait(lock, [&] { return retired_ >= target; });
    late = std::exchange(late_, std::nullopt);
  }
  if (late) throw PipelineError(graph_.stages[late->stage].name, late->item, late->cause);
}

std::uint64_t SessionCore::pushed() const {
  const std::lock_guard lock(mutex_);
  return items_;
}

std::uint64_t SessionCore::retired() const {
  const std::lock_guard lock(mutex_);
  return retired_;
}

void SessionCore::refuse_inside(const char* call) const {
  if (!inside(*this)) return;
  throw_invalid("session", fmt::format("{} outside the session's stage functions", call),
                "a call inside one, which would wait for itself");
}

void SessionCore::close() noexcept {
  {
    std::unique_lock lock(mutex_);
    stop();
    room_.notify_all();
    idle_.wait(lock, [&] { return !enqueuing_; });
  }
  end_submission();
  wait_for_streams();
  threads_.clear();
  free_scratch();
  {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return !retiring_; });
    closed_ = true;
    for (std::uint64_t item = retired_; item < items_; ++item) {
      // What all stages have started is complete by now.
      cancel_locked(*tickets_[item % graph_.window]);
    }
    done_ = items_;
    retire(lock);
  }
  signals_.clear();  // waits for the streams that they hold
}

}  // namespace ps::detail
