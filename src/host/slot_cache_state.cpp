#include "host/slot_cache_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "host/backend.h"
#include "host/clock.h"
#include "host/fork.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

std::size_t checked_granularity(MemoryView memory, std::size_t granularity) {
  if (memory.data == nullptr) throw_invalid("memory", "memory", "a null pointer");
  if (granularity == 0) throw_invalid("granularity", "at least 1 byte", "0");
  if (memory.bytes < granularity) {
    throw_invalid("memory", fmt::format("at least one granule of {} bytes", granularity),
                  fmt::format("{} bytes", memory.bytes));
  }
  return granularity;
}

}  // namespace

SlotCacheState::SlotCacheState(const Device& device, MemoryView memory, SlotCacheOptions options)
    : device_(device),
      memory_(memory),
      granularity_(checked_granularity(memory, options.granularity)),
      capacity_(memory.bytes / granularity_ * granularity_),
      when_exhausted_(options.when_exhausted),
      policy_(options.policy ? std::move(options.policy) : lru_policy()),
      events_(device),
      free_(capacity_) {
  if (memory.place.memory == Memory::device && memory.place != device.place()) {
    throw_invalid("memory", "host memory or memory of " + device.name(),
                  "memory of " + name(memory.place));
  }
}

SlotCacheState::Request SlotCacheState::request(CacheKey key, std::size_t bytes) const {
  if (bytes == 0 || bytes > capacity_) {
    throw_invalid("bytes", fmt::format("between 1 and the capacity {}", capacity_),
                  std::to_string(bytes));
  }
  return {key, bytes, ceil_div(bytes, granularity_) * granularity_};
}

std::optional<SlotCacheState::Acquired> SlotCacheState::acquire(
    CacheKey key, std::size_t bytes, std::optional<std::chrono::nanoseconds> timeout) {
  refuse_after_fork();
  const Request wanted = request(key, bytes);
  Lock lock(mutex_);
  if (keys_.contains(key)) return satisfy(wanted);  // needs no room
  reap(lock);
  rethrow_error();
  serve();  // those who wait came first
  if (auto acquired = satisfy(wanted)) return acquired;
  ++counts_.exhausted;
  return wait_for_room(lock, wanted, timeout);
}

std::optional<SlotCacheState::Acquired> SlotCacheState::wait_for_room(
    Lock& lock, const Request& request, std::optional<std::chrono::nanoseconds> timeout) {
  const std::int64_t begin = now_ns();
  const Pauses pauses;
  struct Queued {
    SlotCacheState& cache;
    std::list<Waiter>::iterator self;
    ~Queued() {
      // reap() has thrown after another thread had served this one.
      if (self->result && self->result->slot) {
        CachedSlot& slot = *self->result->slot;
        cache.let_go(slot, self->result->hit ? nullptr : abandoned(slot.key));
      }
      cache.waiters_.erase(self);
    }
  };
  const Queued queued{*this, waiters_.insert(waiters_.end(), Waiter{.request = request})};
  Waiter& self = *queued.self;
  for (;;) {
    serve();
    if (self.error) std::rethrow_exception(self.error);
    if (self.served()) return std::move(self.result);
    rethrow_error();
    std::int64_t pause = pauses.length_ns();
    if (timeout) {
      const std::int64_t left = timeout->count() - (now_ns() - begin);
      if (left <= 0) return std::nullopt;
      pause = std::min(pause, left);
    }
    changed_.wait_for(lock, std::chrono::nanoseconds(pause));
    if (!self.served()) reap(lock);
  }
}

void SlotCacheState::serve() noexcept {
  for (Waiter& waiter : waiters_) {
    if (waiter.served()) continue;
    try {
      waiter.result = satisfy(waiter.request);
      waiter.hopeless = !waiter.result && !waiting_may_help(waiter.request.taken);
    } catch (...) {
      waiter.error = std::current_exception();
    }
    if (waiter.served()) changed_.notify_all();
  }
}

std::optional<SlotCacheState::Acquired> SlotCacheState::satisfy(const Request& request) {
  if (const auto found = keys_.find(request.key); found != keys_.end()) {
    if (found->second->bytes != request.bytes) {
      throw_invalid("bytes",
                    fmt::format("{}, the size of the cached slot of key {}", found->second->bytes,
                                request.key),
                    std::to_string(request.bytes));
    }
    return hit(found->second);
  }
  const auto offset = make_room(request.taken);
  if (!offset) return std::nullopt;
  const ByteRange range{*offset, request.taken};
  std::shared_ptr<CachedSlot> slot;
  try {
    slot = std::make_shared<CachedSlot>(CachedSlot{request.key, request.bytes, range});
    slots_.emplace(range.offset, slot);
    keys_.emplace(request.key, slot);
    policy_->added(request.key);
  } catch (...) {
    keys_.erase(request.key);
    slots_.erase(range.offset);
    free_.give(range);
    throw;
  }
  ++counts_.misses;
  counts_.missed_bytes += request.bytes;
  counts_.bytes += range.bytes;
  return Acquired{std::move(slot), false};
}

SlotCacheState::Acquired SlotCacheState::hit(const std::shared_ptr<CachedSlot>& slot) {
  policy_->used(slot->key);
  ++slot->handles;
  ++counts_.hits;
  if (slot->fill == Fill::pending) ++counts_.shared_fills;
  return {slot, true};
}

std::optional<SlotCacheState::Acquired> SlotCacheState::acquire_cached(CacheKey key) {
  refuse_after_fork();
  const Lock lock(mutex_);
  const auto found = keys_.find(key);
  if (found == keys_.end()) return std::nullopt;
  return hit(found->second);
}

std::optional<std::size_t> SlotCacheState::make_room(std::size_t bytes) {
  if (const auto offset = free_.take(bytes)) return offset;
  // Which slots have to go is found out on a copy, so that those which do not help stay.
  FreeRanges::Trial trial = free_.trial();
  std::optional<std::size_t> begin;
  policy_->victims([&](CacheKey key) {
    const CachedSlot& slot = *keys_.at(key);
    if (slot.fill != Fill::done || !slot.unused()) return true;
    const ByteRange merged = trial.give(slot.range);
    if (merged.bytes >= bytes) begin = merged.offset;
    return !begin;
  });
  if (!begin) return std::nullopt;
  const ByteRange range{*begin, bytes};
  auto next = slots_.lower_bound(range.offset);
  while (next != slots_.end() && next->first < range.end()) evict(*(next++)->second);
  free_.take_at(range);
  return begin;
}

void SlotCacheState::evict(const CachedSlot& slot) noexcept {
  const CacheKey key = slot.key;
  const ByteRange range = slot.range;
  policy_->removed(key);
  keys_.erase(key);
  slots_.erase(range.offset);
  free_.give(range);
  counts_.bytes -= range.bytes;
  ++counts_.evictions;
}

// Everything that the policy does not keep goes some day: is there room then?
bool SlotCacheState::waiting_may_help(std::size_t bytes) const {
  std::size_t begin = 0;
  for (const auto& [offset, slot] : slots_) {
    if (slot->fill != Fill::done || !policy_->keeps(slot->key)) continue;
    if (offset - begin >= bytes) return true;
    begin = slot->range.end();
  }
  return capacity_ - begin >= bytes;
}

std::optional<SlotCache::Found> SlotCacheState::find(CacheKey key) {
  const Lock lock(mutex_);
  const auto found = keys_.find(key);
  if (found == keys_.end()) return std::nullopt;
  const CachedSlot& slot = *found->second;
  return SlotCache::Found{index(slot), slot.bytes, slot.fill != Fill::pending};
}

SlotCacheStatistics SlotCacheState::statistics() {
  const Lock lock(mutex_);
  SlotCacheStatistics result = counts_;
  result.keys = keys_.size();
  result.capacity = capacity_;
  return result;
}

std::string SlotCacheState::exhausted_message(std::size_t bytes) {
  const Lock lock(mutex_);
  std::size_t held = 0, in_flight = 0, kept = 0;
  for (const auto& [offset, slot] : slots_) {
    if (slot->handles != 0) {
      held += slot->range.bytes;
    } else if (slot->in_flight != 0) {
      in_flight += slot->range.bytes;
    } else if (policy_->keeps(slot->key)) {
      kept += slot->range.bytes;
    }
  }
  return fmt::format(
      "no room for {} bytes in a cache of {}: {} bytes are held by handles, {} are used by work in "
      "flight, and {} are kept by the policy",
      bytes, capacity_, held, in_flight, kept);
}

}  // namespace ps::detail
