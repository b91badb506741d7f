#include "penstock/host/slot_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "host/backend.h"
#include "host/clock.h"
#include "host/device_clock.h"
#include "host/fork.h"
#include "host/worker.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"

namespace ps {
namespace detail {

class SlotRingState : public std::enable_shared_from_this<SlotRingState> {
 public:
  SlotRingState(const Device& device, const SlotRingOptions& options);

  std::optional<std::size_t> acquire(std::optional<std::chrono::nanoseconds> timeout);
  void release(std::size_t index) noexcept;
  void release_after(std::size_t index, const Stream& stream);
  void wait_for_returns();
  SlotRingStatistics statistics();

  const SlotRingOptions options;
  PinnedBuffer memory;  // every slot, in one piece

  MemoryView view(std::size_t index) const {
    return memory.view().sub(index * options.slot_bytes, options.slot_bytes);
  }

 private:
  struct Slot {
    Event done;
    std::int64_t came_back_ns = 0;  // not yet among the samples; 0: nothing to sample
  };
  struct Sample {
    double device_seconds;
    std::int64_t host_ns;
  };

  // On a thread of the ring: bring back the slot named, or whichever comes first.
  void recycle(std::size_t index) noexcept;
  void recycle_next() noexcept;
  std::optional<std::size_t> find_done(std::exception_ptr& error) noexcept;
  void give_back(std::size_t index, std::exception_ptr error) noexcept;
  void sample(Slot& slot);

  Device device_;
  std::optional<DeviceClock> clock_;
  std::vector<Slot> slots_;

  std::mutex mutex_;
  std::condition_variable came_back_;
  std::deque<std::size_t> free_;
  std::vector<std::size_t> returning_;  // slots, in the order of their release
  std::vector<std::size_t> looked_at_;  // by recycle_next() alone
  std::exception_ptr error_;
  std::uint64_t acquired_ = 0, exhausted_ = 0;
  std::vector<Sample> samples_;
  // One looks at all returning slots in turn. A thread that sleeps until the device interrupts can
  // wait for a single event, so with Waiting::block every slot has its own.
  std::vector<std::unique_ptr<Worker>> workers_;
};

SlotRingState::SlotRingState(const Device& device, const SlotRingOptions& o)
    : options(o), device_(device) {
  if (o.slots == 0) throw_invalid("slots", "at least 1", "0");
  if (o.slot_bytes == 0) throw_invalid("slot_bytes", "at least 1", "0");
  memory = PinnedBuffer(device, checked_mul(o.slots, o.slot_bytes, "slots * slot_bytes"));
  const EventOptions event{.timing = o.measure, .waiting = o.waiting};
  slots_.reserve(o.slots);
  returning_.reserve(o.slots);
  looked_at_.reserve(o.slots);
  for (std::size_t i = 0; i < o.slots; ++i) {
    slots_.push_back({.done = Event(device, event)});
    free_.push_back(i);
  }
  const std::size_t workers = o.waiting == Waiting::block ? o.slots : 1;
  for (std::size_t i = 0; i < workers; ++i) {
    workers_.push_back(std::make_unique<Worker>([device] { device.backend().enter_thread(); }));
  }
  // A stream of its own: the clock must never wait for returning slots.
  if (o.measure) clock_.emplace(Stream(device));
}

std::optional<std::size_t> SlotRingState::acquire(std::optional<std::chrono::nanoseconds> timeout) {
  refuse_after_fork();
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return !free_.empty() || error_; };
  if (free_.empty()) {
    ++exhausted_;
    if (!timeout) {
      came_back_.wait(lock, ready);
    } else if (!came_back_.wait_for(lock, *timeout, ready)) {
      return std::nullopt;
    }
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  const std::size_t index = free_.front();
  free_.pop_front();
  ++acquired_;
  return index;
}

void SlotRingState::release(std::size_t index) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(index);
  came_back_.notify_one();
}

void SlotRingState::release_after(std::size_t index, const Stream& stream) {
  Slot& slot = slots_[index];
  if (options.measure) {
    const std::lock_guard lock(mutex_);
    sample(slot);
  }
  stream.record(slot.done);
  const std::lock_guard lock(mutex_);
  if (options.waiting == Waiting::block) {
    workers_[index]->post([state = shared_from_this(), index] { state->recycle(index); });
  } else {
    // As many tasks as returning slots, though a task may bring back another slot than this one.
    workers_.front()->post([state = shared_from_this()] { state->recycle_next(); });
  }
  returning_.push_back(index);  // within what is reserved: cannot fail
}

void SlotRingState::recycle(std::size_t index) noexcept {
  std::exception_ptr error;
  try {
    slots_[index].done.synchronize();
  } catch (...) {
    error = std::current_exception();
  }
  give_back(index, std::move(error));
}

void SlotRingState::recycle_next() noexcept {
  std::exception_ptr error;
  const Pauses pauses;
  std::optional<std::size_t> index;
  while (!(index = find_done(error))) {
    if (options.waiting == Waiting::poll) pauses.next();
  }
  give_back(*index, std::move(error));
}

// The first returning slot that the device is done with, or whose event cannot be looked at.
std::optional<std::size_t> SlotRingState::find_done(std::exception_ptr& error) noexcept {
  {
    const std::lock_guard lock(mutex_);
    looked_at_ = returning_;  // only this thread takes slots out
  }
  for (const std::size_t index : looked_at_) {
    try {
      if (slots_[index].done.done()) return index;
    } catch (...) {
      error = std::current_exception();
      return index;
    }
  }
  return std::nullopt;
}

void SlotRingState::give_back(std::size_t index, std::exception_ptr error) noexcept {
  if (error) {
    try {
      device_.synchronize();  // nobody may get the slot while the device still uses it
    } catch (...) {
      // The device is lost: it uses nothing any more.
    }
  }
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  free_.push_back(index);
  std::erase(returning_, index);
  if (options.measure) slots_[index].came_back_ns = now_ns();
  came_back_.notify_all();
}

// Reads the event's time before the event is recorded anew. The slot is the caller's or free.
void SlotRingState::sample(Slot& slot) {
  if (slot.came_back_ns == 0) return;
  samples_.push_back({Event::seconds_between(clock_->origin(), slot.done), slot.came_back_ns});
  slot.came_back_ns = 0;
}

void SlotRingState::wait_for_returns() {
  if (forked()) return;  // nobody is left to bring them
  std::unique_lock lock(mutex_);
  came_back_.wait(lock, [&] { return returning_.empty(); });
}

SlotRingStatistics SlotRingState::statistics() {
  const std::lock_guard lock(mutex_);
  SlotRingStatistics result{
      .acquired = acquired_, .exhausted = exhausted_, .free_slots = free_.size()};
  if (!options.measure) return result;
  for (const std::size_t index : free_) sample(slots_[index]);
  if (samples_.empty()) return result;
  clock_->close();
  std::vector<double> late;
  late.reserve(samples_.size());
  for (const Sample& s : samples_) {
    late.push_back(static_cast<double>(s.host_ns - clock_->host_ns(s.device_seconds)) * 1e-3);
  }
  std::sort(late.begin(), late.end());
  const auto at = [&](double share) {
    return late[static_cast<std::size_t>(share * static_cast<double>(late.size() - 1))];
  };
  result.recycle_p50_us = at(0.5);
  result.recycle_p99_us = at(0.99);
  return result;
}

}  // namespace detail

SlotRing::Slot::Slot(std::shared_ptr<detail::SlotRingState> state, std::size_t index)
    : state_(std::move(state)), index_(index) {}
SlotRing::Slot::Slot(Slot&& other) noexcept
    : state_(std::move(other.state_)), index_(other.index_) {}
SlotRing::Slot& SlotRing::Slot::operator=(Slot&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(index_, other.index_);
  return *this;
}
SlotRing::Slot::~Slot() { release(); }

MemoryView SlotRing::Slot::view() const { return state_->view(index_); }

void SlotRing::Slot::release_after(const Stream& stream) {
  try {
    stream.impl().refuse_capture("SlotRing::Slot::release_after");
    state_->release_after(index_, stream);
  } catch (...) {
    try {
      stream.synchronize();  // the slot stays the caller's, who may drop it at once
    } catch (...) {
      // The first failure is the one to report.
    }
    throw;
  }
  state_.reset();
}

void SlotRing::Slot::release() noexcept {
  if (const auto state = std::exchange(state_, nullptr)) state->release(index_);
}

SlotRing::SlotRing(const Device& device, SlotRingOptions options)
    : state_(std::make_shared<detail::SlotRingState>(device, options)) {}

SlotRing::~SlotRing() { state_->wait_for_returns(); }

SlotRing::Slot SlotRing::acquire() {
  std::optional<std::chrono::nanoseconds> timeout;
  if (state_->options.when_exhausted == WhenExhausted::fail) timeout.emplace(0);
  const auto index = state_->acquire(timeout);
  if (!index) {
    throw Exhausted(fmt::format("all {} slots of {} bytes are in use", state_->options.slots,
                                state_->options.slot_bytes));
  }
  return {state_, *index};
}

std::optional<SlotRing::Slot> SlotRing::try_acquire(std::chrono::nanoseconds timeout) {
  const auto index = state_->acquire(timeout);
  if (!index) return std::nullopt;
  return Slot(state_, *index);
}

std::size_t SlotRing::slots() const { return state_->options.slots; }
SlotRingStatistics SlotRing::statistics() const { return state_->statistics(); }

}  // namespace ps
