// Fills, releases, and the work in flight that they wait for.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "host/backend.h"
#include "host/fork.h"
#include "host/slot_cache_state.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

// A stream of the caller may have been borrowed more than once.
bool is_same(const Stream& a, const Stream& b) {
  return a == b || (!a.owned() && !b.owned() && a.native() == b.native());
}

}  // namespace

void SlotCacheState::check_device(const char* argument, const Device& device) const {
  if (device == device_) return;
  throw_invalid(argument, std::string("one of ") + device_.name(), "one of " + device.name());
}

void SlotCacheState::use(const std::shared_ptr<CachedSlot>& slot, const Stream& stream,
                         const char* operation, bool fills) {
  check_device("stream", stream.device());
  try {
    stream.impl().refuse_capture(operation);
    std::shared_ptr<Event> event = events_.take();
    stream.record(*event);
    const Lock lock(mutex_);
    add_use(stream, {slot, std::move(event), fills});
  } catch (...) {
    try {
      stream.synchronize();  // the slot stays the caller's, who may drop it at once
    } catch (...) {
      // The first failure is the one to report.
    }
    throw;
  }
}

void SlotCacheState::fill_by(const std::shared_ptr<CachedSlot>& slot, const Event& event) {
  check_device("event", event.device());
  (void)event.done();  // refuses an event that belongs to a graph
  auto copy = std::make_shared<Event>(event);
  const Lock lock(mutex_);
  add_use(std::nullopt, {slot, std::move(copy), true});
}

void SlotCacheState::fill_now(CachedSlot& slot) {
  const Lock lock(mutex_);
  slot.fill = Fill::done;
  changed_.notify_all();
}

void SlotCacheState::add_use(std::optional<Stream> stream, Use use) {
  // A cache that only has hits never asks for completions in acquire().
  if (uses_ >= prune_at_) prune();
  const auto queue_of = [&](const Queue& other) {
    return stream && other.stream && is_same(*stream, *other.stream);
  };
  auto queue = std::find_if(queues_.begin(), queues_.end(), queue_of);
  if (queue == queues_.end()) {
    queue = queues_.insert(queues_.end(), Queue{.stream = std::move(stream), .uses = {}});
  }
  queue->uses.push_back(use);  // an empty queue, if this throws, goes with the next reap()
  ++uses_;
  ++use.slot->in_flight;
  if (use.fills) {
    use.slot->fill = Fill::in_flight;
    use.slot->filled = std::move(use.done);
    changed_.notify_all();
  }
}

void SlotCacheState::prune() noexcept {
  for (auto queue = queues_.begin(); queue != queues_.end();) {
    try {
      while (!queue->uses.empty() && queue->uses.front().done->done()) {
        const Use use = std::move(queue->uses.front());
        queue->uses.pop_front();
        complete(use, nullptr);
      }
    } catch (...) {
      // The use stays, and acquire() reports what is wrong with it.
    }
    queue = queue->uses.empty() ? queues_.erase(queue) : std::next(queue);
  }
  prune_at_ = std::max(least_to_prune, 2 * uses_);
}

void SlotCacheState::reap(Lock& lock) {
  for (auto queue = queues_.begin(); queue != queues_.end();) {
    if (queue->uses.empty()) {
      queue = queues_.erase(queue);
      continue;
    }
    std::exception_ptr error;
    try {
      if (!queue->uses.front().done->done()) {
        ++queue;
        continue;
      }
    } catch (const Unsupported&) {
      throw;  // a graph is being captured: nothing is known about the work
    } catch (...) {
      error = std::current_exception();
    }
    const Use use = std::move(queue->uses.front());
    queue->uses.pop_front();
    if (error) {
      // Nobody may get the slot while the device still uses it. Work that is waited for may itself
      // need the lock.
      lock.unlock();
      device_.backend().drain();
      lock.lock();
      queue = queues_.begin();
      if (!error_) error_ = error;
    }
    complete(use, std::move(error));
  }
}

void SlotCacheState::complete(const Use& use, std::exception_ptr error) noexcept {
  CachedSlot& slot = *use.slot;
  --slot.in_flight;
  --uses_;
  if (use.fills && error) {
    fail_fill(slot, std::move(error));
  } else if (use.fills) {
    slot.fill = Fill::done;
    slot.filled.reset();
  }
  free_if_unused(slot);
  changed_.notify_all();
}

void SlotCacheState::fail_fill(CachedSlot& slot, std::exception_ptr error) noexcept {
  slot.fill = Fill::failed;
  slot.error = std::move(error);
  slot.filled.reset();
  policy_->removed(slot.key);
  keys_.erase(slot.key);
  ++counts_.failed_fills;
}

void SlotCacheState::free_if_unused(CachedSlot& slot) noexcept {
  if (slot.fill != Fill::failed || !slot.unused()) return;
  free_.give(slot.range);
  counts_.bytes -= slot.range.bytes;
  slots_.erase(slot.range.offset);
}

void SlotCacheState::rethrow_error() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void SlotCacheState::release(CachedSlot& slot, std::exception_ptr error) noexcept {
  const Lock lock(mutex_);
  let_go(slot, std::move(error));
}

std::exception_ptr SlotCacheState::abandoned(CacheKey key) noexcept {
  try {
    return std::make_exception_ptr(FillAbandoned(
        fmt::format("the handle that had to fill the slot of key {} was released", key)));
  } catch (...) {
    return std::current_exception();
  }
}

void SlotCacheState::let_go(CachedSlot& slot, std::exception_ptr error) noexcept {
  if (error) fail_fill(slot, std::move(error));
  --slot.handles;
  free_if_unused(slot);
  changed_.notify_all();
}

void SlotCacheState::wait_for_announcement(Lock& lock, const CachedSlot& slot) {
  changed_.wait(lock, [&] { return slot.fill != Fill::pending; });
  if (slot.fill == Fill::failed) std::rethrow_exception(slot.error);
}

void SlotCacheState::join(CachedSlot& slot, const Stream& stream) {
  refuse_after_fork();
  check_device("stream", stream.device());
  std::shared_ptr<Event> filled;  // keeps the event from being recorded anew
  {
    Lock lock(mutex_);
    wait_for_announcement(lock, slot);
    filled = slot.filled;
  }
  if (!filled) return;
  stream.impl().refuse_capture("SlotCache::Slot::join");
  stream.wait(*filled);
}

void SlotCacheState::wait(CachedSlot& slot) {
  refuse_after_fork();
  std::shared_ptr<Event> filled;
  {
    Lock lock(mutex_);
    wait_for_announcement(lock, slot);
    filled = slot.filled;
  }
  if (filled) filled->synchronize();
}

bool SlotCacheState::ready(CachedSlot& slot) {
  std::shared_ptr<Event> filled;
  {
    const Lock lock(mutex_);
    if (slot.fill == Fill::pending) return false;
    if (slot.fill == Fill::failed) std::rethrow_exception(slot.error);
    filled = slot.filled;
  }
  return !filled || filled->done();
}

void SlotCacheState::drain() noexcept {
  Lock lock(mutex_);
  while (!queues_.empty()) {
    if (queues_.front().uses.empty()) {
      queues_.pop_front();
      continue;
    }
    const Use use = std::move(queues_.front().uses.front());
    queues_.front().uses.pop_front();
    std::exception_ptr error;
    lock.unlock();
    try {
      use.done->synchronize();
    } catch (...) {
      error = std::current_exception();
      device_.backend().drain();
    }
    lock.lock();
    complete(use, std::move(error));
  }
}

}  // namespace ps::detail
